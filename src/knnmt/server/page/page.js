// The page: set-up and controls.

import { ask, useKey } from "./api.js";
import * as choices from "./choices.js";
import * as desk from "./desk.js";
import * as documents from "./documents.js";
import { $, fit, make, show } from "./dom.js";
import { acceptDrops } from "./drop.js";
import * as glossary from "./glossary.js";
import * as memory from "./memory.js";
import { navigate } from "./navigation.js";
import * as review from "./review.js";
import * as status from "./status.js";
import { showError, showStatus } from "./status.js";
import { edit, reportChange, teach } from "./teaching.js";
import { choose, invalidate, showSourceActions, state, translate, translateSoon } from "./translation.js";
import * as views from "./views.js";
import { explain } from "./why.js";

const THEMES = ["system", "light", "dark"];
let suffixes = []; // of documents that the server takes
let turn = 0; // of opening a desk

// --------------------------------------------------------------------------------------------------- set-up

async function begin() {
  try {
    const [about] = await Promise.all([ask("frontend/settings"), desk.load()]);
    suffixes = about.supportedFilesFormat;
    show($("docs"), !about.keyRequired); // a link cannot carry the key
  } catch (error) {
    showError(error, begin);
    return;
  }
  show($("key"), false);
  views.open("translate");
  showCaller();
  documents.start(suffixes);
  review.start();
  await openDesk();
}

function showCaller() {
  show($("who"), desk.caller.keys);
  $("who-name").textContent = `${desk.caller.name} (${desk.caller.role})`;
  show($("tabs"), desk.sees());
}

// Set the page up for the pair and the memories that are chosen.
async function openDesk() {
  const mine = ++turn;
  invalidate();
  choices.draw();
  showSourceActions();
  for (const id of ["legend", "empty-memory"]) show($(id), desk.inUse().length > 0);
  const loading = setTimeout(() => showStatus("Loading…", "busy"), 400); // a model that was not used for long
  try {
    const systems = await ask(`v1/systems?${new URLSearchParams(desk.languages)}`);
    if (mine !== turn) return;
    showSystems(systems);
    showStatus("");
  } catch (error) {
    if (mine === turn) showError(error, openDesk);
    return;
  } finally {
    clearTimeout(loading);
  }
  await Promise.all([memory.start(), translate()]);
}

function showSystems({ systems, default: usual, lambda }) {
  const options = systems.map(({ name, summary }) => make("option", { value: name }, `${name}: ${summary}`));
  const before = $("system").value;
  const kept = before !== state.defaults.system && systems.some(({ name }) => name === before);
  $("system").replaceChildren(...options);
  $("system").value = kept ? before : usual;
  $("system").disabled = systems.length < 2;
  state.defaults = { system: usual, lambda };
  showWeight();
}

function showWeight() {
  const alone = $("system").value === "base";
  const { system, lambda } = state.defaults;
  $("weight").disabled = alone;
  if (state.lambda === null) $("weight").value = alone ? 0 : lambda;
  // each system has its own default, and the server sends that of its default system only
  const known = alone || state.lambda !== null || $("system").value === system;
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
    const { total } = await ask(`v1/memory?limit=1${desk.named()}`);
    const offset = Math.floor(Math.random() * total);
    const { segments } = await ask(`v1/memory?limit=1&offset=${offset}${desk.named()}`);
    if (segments.length) replaceSource(segments[0].source);
  } catch (error) {
    showError(error, () => {});
  }
}

// The translation becomes the text, as long as it is the text's.
function swapTexts() {
  if (state.words.length && !$("copy").disabled) $("source").value = state.text;
  fit($("source"));
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
  if (!state.defaults.system || $("view-translate").hidden) return {};
  return {
    ...(suffixes.length ? { "drop-document": documents.translateAll } : {}),
    ...(desk.learns() ? { "drop-memory": ([file]) => memory.importFile(file) } : {}),
  };
}

function listen() {
  documents.listen();
  glossary.listen(translate);
  memory.listen((what) => translate({ compared: () => reportChange(what) }));
  review.listen(openDesk);
  status.listen();
  views.listen((name) => review.open(name === "review"));
  choices.listen(openDesk, swapTexts);
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
    $("key-input").value = "";
    begin();
  });
  $("sign-out").addEventListener("click", () => {
    useKey("");
    location.reload();
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
