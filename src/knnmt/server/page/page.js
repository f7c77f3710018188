// The page: set-up and controls.

import { ask, useKey } from "./api.js";
import * as documents from "./documents.js";
import { $, fit, languages, make, memories, show } from "./dom.js";
import { acceptDrops } from "./drop.js";
import * as glossary from "./glossary.js";
import * as memory from "./memory.js";
import { navigate } from "./navigation.js";
import { showError, showStatus } from "./status.js";
import { edit, reportChange, teach } from "./teaching.js";
import { choose, state, translate, translateSoon } from "./translation.js";
import { explain } from "./why.js";

const THEMES = ["system", "light", "dark"];
const server = { system: "", lambda: 0 }; // its defaults

// --------------------------------------------------------------------------------------------------- set-up

async function begin() {
  try {
    const [about, systems] = await Promise.all([ask("frontend/settings"), ask("v1/systems")]);
    configure(about, systems);
  } catch (error) {
    showError(error, begin);
    return;
  }
  show($("key"), false);
  showStatus("");
  documents.start(state.settings.suffixes);
  await memory.start(state.settings, (what) => translate({ compared: () => reportChange(what) }));
  if ($("source").value.trim()) translate();
}

function configure(about, systems) {
  const { source, target } = about.language;
  memories.splice(0, Infinity, ...systems.memories);
  const suffixes = about.supportedFilesFormat;
  state.settings = { learns: about.suggestions, store: memories.length > 0, suffixes };
  $("pair").textContent = `${source.name} to ${target.name}`;
  document.title = `knnmt: ${source.name} to ${target.name}`;
  $("source-name").textContent = source.name;
  $("target-name").textContent = target.name;
  Object.assign(languages, { source: source.code, target: target.code });
  $("source").lang = source.code;
  $("words").lang = $("edit").lang = target.code;
  const options = systems.systems.map(({ name, summary }) => make("option", { value: name }, `${name}: ${summary}`));
  $("system").replaceChildren(...options);
  $("system").value = systems.default;
  $("system").disabled = systems.systems.length < 2;
  Object.assign(server, { system: systems.default, lambda: systems.lambda });
  showWeight();
  show($("docs"), !about.keyRequired); // a link cannot carry the key
  show($("example"), state.settings.store);
  show($("legend"), state.settings.store);
}

function showWeight() {
  const alone = $("system").value === "base";
  $("weight").disabled = alone || !state.settings.store;
  if (state.lambda === null) $("weight").value = alone ? 0 : server.lambda;
  // each system has its own default, and the server sends that of its default system only
  const known = alone || state.lambda !== null || $("system").value === server.system;
  const shown = known ? Number($("weight").value).toFixed(2) : "auto";
  $("weight-shown").textContent = shown;
  $("weight").setAttribute("aria-valuetext", state.lambda === null ? `${shown}, default` : shown);
  show($("weight-reset"), state.lambda !== null && !alone);
}

// ------------------------------------------------------------------------------------------------ controls

function replaceSource(text) {
  $("source").value = text;
  fit($("source"));
  translateSoon();
  translate();
  $("source").focus();
}

async function showExample() {
  try {
    const { total } = await ask("v1/memory?limit=1");
    const { segments } = await ask(`v1/memory?limit=1&offset=${Math.floor(Math.random() * total)}`);
    if (segments.length) replaceSource(segments[0].source);
  } catch (error) {
    showError(error, () => {});
  }
}

async function copy() {
  try {
    await navigator.clipboard.writeText(state.text); // only available on secure origins
    showStatus("Copied.");
  } catch {
    getSelection().selectAllChildren($("words"));
    showStatus(document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C to copy.");
  }
}

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-label", `Theme: ${theme}`);
  $("theme").title = `Theme: ${theme}`;
}

// What takes the files that are dropped on each zone of the page.
function takers() {
  const { suffixes, learns } = state.settings;
  return {
    ...(suffixes.length ? { "drop-document": documents.translateAll } : {}),
    ...(learns ? { "drop-memory": ([file]) => memory.importFile(file) } : {}),
  };
}

function listen() {
  documents.listen();
  glossary.listen(translate);
  memory.listen();
  acceptDrops(takers);
  $("source").addEventListener("input", () => {
    fit($("source"));
    translateSoon();
  });
  $("clear").addEventListener("click", () => replaceSource(""));
  $("example").addEventListener("click", showExample);
  $("system").addEventListener("change", () => {
    state.lambda = null;
    showWeight();
    translate();
  });
  $("weight").addEventListener("input", () => {
    state.lambda = Number($("weight").value);
    showWeight();
    translateSoon();
  });
  $("weight-reset").addEventListener("click", () => {
    state.lambda = null;
    showWeight();
    $("weight").focus();
    translate();
  });
  $("words").addEventListener("keydown", navigate);
  $("why-close").addEventListener("click", () => {
    const word = state.words[state.chosen];
    choose(-1);
    word?.node.focus();
  });
  $("correct").addEventListener("click", () => edit(true));
  $("cancel").addEventListener("click", () => edit(false));
  $("teach").addEventListener("click", teach);
  $("edit").addEventListener("input", () => fit($("edit")));
  $("edit").addEventListener("keydown", (event) => {
    if (event.key === "Escape") edit(false);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      teach();
    }
  });
  $("copy").addEventListener("click", copy);
  $("key").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey($("key-input").value.trim());
    begin();
  });
  document.addEventListener("click", (event) => {
    if (!$("advanced").contains(event.target)) $("advanced").open = false;
  });
  $("advanced").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    $("advanced").open = false;
    $("advanced").querySelector("summary").focus();
  });
  const stored = localStorage.getItem("knnmt-theme");
  applyTheme(THEMES.includes(stored) ? stored : THEMES[0]);
  $("theme").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
    localStorage.setItem("knnmt-theme", next);
    applyTheme(next);
  });
}

listen();
explain(null);
begin();
