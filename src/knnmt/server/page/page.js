// The page: translate as one types, show where each word comes from, teach.

import { ask, ServerError, useKey } from "./api.js";
import { $, counted, languages, make, percent, show } from "./dom.js";
import * as memory from "./memory.js";
import { explain, shade } from "./why.js";
import { changes, LETTERS, toWords } from "./words.js";

const PAUSE = 300; // milliseconds without a key before a translation is asked for
const SLOW = 250; // milliseconds after which it is said that one is under way

const state = {
  settings: { learns: false, store: false },
  lambda: null, // as chosen; null: the server's
  preset: 0,
  preferred: "", // the server's system
  lines: [], // of the source, as translated last
  words: [], // of the translation, all lines
  text: "",
  chosen: -1,
  taught: "",
};
let pending = null; // the request under way
let timer = 0;
let retry = 0;

// --------------------------------------------------------------------------------------------------- set-up

async function begin() {
  try {
    const [about, systems] = await Promise.all([ask("frontend/settings"), ask("v1/systems")]);
    configure(about, systems);
  } catch (error) {
    trouble(error, begin);
    return;
  }
  show($("key"), false);
  say("");
  await memory.start(state.settings, (why) => translate({ compare: why }));
  if ($("source").value.trim()) translate();
}

function configure(about, systems) {
  const { source, target } = about.language;
  state.settings = { learns: about.suggestions, store: systems.systems.length > 1 };
  $("pair").textContent = `${source.name} to ${target.name}`;
  document.title = `knnmt: ${source.name} to ${target.name}`;
  $("source-name").textContent = source.name;
  $("target-name").textContent = target.name;
  Object.assign(languages, { source: source.code, target: target.code });
  $("source").lang = source.code;
  $("words").lang = $("edit").lang = target.code;
  const options = systems.systems.map((name) => make("option", { value: name }, NAMES[name] || name));
  $("system").replaceChildren(...options);
  $("system").value = systems.default;
  $("system").disabled = systems.systems.length < 2;
  state.preset = systems.lambda;
  state.preferred = systems.default;
  weigh();
  show($("example"), state.settings.store);
  show($("legend"), state.settings.store);
}

const NAMES = {
  base: "base: the model alone",
  knn: "knn: exact kNN-MT",
  fast: "fast: Fast kNN-MT",
  faster: "faster: Faster kNN-MT",
  proto: "proto: prototypes",
  similar: "similar: by word and segment",
};

function weigh() {
  const alone = $("system").value === "base";
  $("weight").disabled = alone || !state.settings.store;
  if (state.lambda === null) $("weight").value = alone ? 0 : state.preset;
  // each system has its own preset, and the server tells that of its default
  const known = alone || state.lambda !== null || $("system").value === state.preferred;
  const shown = known ? Number($("weight").value).toFixed(2) : "auto";
  $("weight-shown").textContent = shown;
  $("weight").setAttribute("aria-valuetext", state.lambda === null ? `${shown}, preset` : shown);
  show($("weight-reset"), state.lambda !== null && !alone);
}

// ------------------------------------------------------------------------------------------------ translation

function soon() {
  clearTimeout(timer);
  clearTimeout(retry);
  show($("clear"), $("source").value !== "");
  show($("example"), state.settings.store && $("source").value === "");
  timer = setTimeout(translate, PAUSE);
}

async function translate({ compare = "" } = {}) {
  clearTimeout(timer);
  clearTimeout(retry);
  pending?.abort();
  if (!$("editor").hidden || !$("system").value) return; // being corrected, or not set up yet
  const lines = $("source").value.split("\n").map((line) => line.trim());
  while (lines.length && !lines.at(-1)) lines.pop();
  const texts = lines.filter(Boolean);
  if (!texts.length) {
    pending = null;
    $("target-pane").removeAttribute("aria-busy");
    render([], []);
    say("");
    return;
  }
  const mine = (pending = new AbortController());
  const slow = setTimeout(() => say("Translating…", "busy"), SLOW);
  $("target-pane").setAttribute("aria-busy", "true");
  const asked = { q: texts, evidence: true, system: $("system").value };
  if (state.lambda !== null && asked.system !== "base") asked.lambda = state.lambda;
  try {
    const { translations } = await ask("v1/translate", { method: "POST", json: asked, signal: mine.signal });
    if (mine !== pending) return;
    const before = state.words.map((word) => word.text);
    render(lines, translations, compare ? before : null);
    say("");
    if (compare) after(compare);
  } catch (error) {
    if (error.name === "AbortError" || mine !== pending) return;
    trouble(error, () => translate({ compare }));
  } finally {
    clearTimeout(slow);
    if (mine === pending) $("target-pane").removeAttribute("aria-busy");
  }
}

function render(lines, translations, before = null) {
  const rest = translations.values();
  const box = $("words");
  const held = box.contains(document.activeElement) ? state.chosen : -1;
  state.lines = lines;
  state.words = [];
  const texts = [];
  const paragraphs = lines.map((line) => {
    const translation = line ? rest.next().value : null;
    texts.push(translation ? translation.text : "");
    const words = translation ? toWords(translation) : [];
    const paragraph = make("p", {});
    for (const word of words) {
      word.node = button(word, state.words.length);
      state.words.push(word);
      paragraph.append(word.space ? " " : "", word.node);
    }
    return paragraph;
  });
  state.text = texts.join("\n");
  box.replaceChildren(...paragraphs);
  if (before) {
    changes(before, state.words.map((word) => word.text)).forEach((changed, n) => {
      if (!changed) return;
      state.words[n].changed = true;
      state.words[n].node.classList.add("changed");
      label(state.words[n]);
    });
  } else {
    note("");
  }
  choose(-1);
  const first = state.words[held >= 0 ? Math.min(held, state.words.length - 1) : 0];
  if (first) first.node.tabIndex = 0;
  if (held >= 0) first?.node.focus();
  show($("copy"), state.words.length > 0);
  show($("correct"), state.words.length > 0 && state.settings.learns);
}

function button(word, number) {
  const options = { type: "button", class: `word s${shade(word.memory)}`, tabindex: "-1", "aria-pressed": "false" };
  word.node = make("button", { ...options, onclick: () => choose(number) }, word.text);
  label(word);
  return word.node;
}

function label(word) {
  const share = word.memory === null ? "" : `, ${percent(word.memory)} from memory`;
  word.node.setAttribute("aria-label", `${word.text}${share}${word.changed ? ", changed" : ""}`);
}

function choose(number) {
  state.words[state.chosen]?.node.setAttribute("aria-pressed", "false");
  state.chosen = number;
  const word = state.words[number];
  word?.node.setAttribute("aria-pressed", "true");
  if (word) {
    rove(number);
    word.node.scrollIntoView({ block: "nearest" }); // on a phone the panel would cover it
  }
  explain(word, $("system").value);
}

function rove(number) {
  for (const word of state.words) word.node.tabIndex = -1;
  state.words[number].node.tabIndex = 0;
}

function walk(event) {
  const here = state.words.findIndex((word) => word.node === event.target);
  if (here < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
  const last = state.words.length - 1;
  const steps = {
    ArrowRight: () => here + 1,
    ArrowLeft: () => here - 1,
    ArrowDown: () => nearest(here, 1),
    ArrowUp: () => nearest(here, -1),
    Home: () => 0,
    End: () => last,
  };
  if (event.key === "Escape") choose(-1);
  if (!Object.hasOwn(steps, event.key)) return;
  event.preventDefault();
  const next = Math.max(0, Math.min(last, steps[event.key]()));
  rove(next);
  state.words[next].node.focus();
  if (state.chosen >= 0) choose(next); // the panel is open: it follows
}

// The word in the next line of the screen that is nearest across; the same word where there is none.
function nearest(here, direction) {
  const box = state.words[here].node.getBoundingClientRect();
  const middle = box.left + box.width / 2;
  let best = here;
  let least = Infinity;
  for (let n = here + direction; n >= 0 && n < state.words.length; n += direction) {
    const other = state.words[n].node.getBoundingClientRect();
    const down = direction * (other.top - box.top);
    if (down < box.height / 2) continue;
    const cost = down * 10 + Math.abs(other.left + other.width / 2 - middle);
    if (cost >= least && down > 2 * box.height) break;
    if (cost < least) [best, least] = [n, cost];
  }
  return best;
}

// --------------------------------------------------------------------------------------------------- teaching

function edit(open) {
  show($("editor"), open);
  show($("words"), !open);
  show($("legend"), !open && state.settings.store);
  show($("copy"), !open && state.words.length > 0);
  show($("correct"), !open && state.words.length > 0);
  show($("teach"), open);
  show($("cancel"), open);
  $("source").readOnly = open;
  if (open) {
    note("");
    $("edit").value = state.text;
    fit($("edit"));
    $("edit").focus();
  } else {
    $("correct").focus();
  }
}

async function teach() {
  const written = $("edit").value.replace(/\n+$/, "").split("\n").map((line) => line.trim());
  const had = state.text.split("\n");
  if (written.length !== state.lines.length) {
    const [text, here] = [state.lines, written].map((lines) => counted(lines.length, "line"));
    note(`The text has ${text}, this has ${here}: they must match, line for line.`, "error");
    return;
  }
  const single = state.lines.length === 1; // teaching it as it is makes it surer
  const pairs = state.lines.map((line, n) => [line, written[n], had[n]]);
  const lessons = pairs.filter(([line, now, before]) => line && now && (now !== before || single));
  if (!lessons.length) {
    note("Nothing was changed, so there is nothing to learn.", "error");
    return;
  }
  $("teach").disabled = true;
  try {
    for (const [q, s] of lessons) {
      await ask("suggest", { method: "POST", json: { q, s, ...languages } });
    }
    state.taught = written.join("\n");
    edit(false);
    await Promise.all([translate({ compare: "taught" }), memory.refresh()]);
  } catch (error) {
    note(`This was not learnt: ${error.message}`, "error");
  } finally {
    $("teach").disabled = false;
  }
}

function after(why) {
  const count = state.words.filter((word) => word.changed && LETTERS.test(word.text)).length;
  const same = "The translation stays as it was.";
  const marked = count ? `${counted(count, "word")} changed, marked by a line below.` : same;
  if (why !== "taught") {
    note(`${why === "removed" ? "Forgotten." : "Imported."} ${marked}`);
  } else if ($("system").value === "base") {
    note("Learnt. The system base does not use the memory: choose another to see it.");
  } else if (squeezed(state.text) === squeezed(state.taught)) {
    note(`Learnt: the translation now reads as you wrote it. ${count ? marked : ""}`);
  } else {
    note(`Learnt. ${marked} It does not read quite as you wrote it; a larger λ makes the memory count more.`);
  }
}

const squeezed = (text) => text.replace(/\s+/g, " ").trim();

// ------------------------------------------------------------------------------------------------ telling

function say(words, kind = "") {
  $("status").textContent = words;
  $("status").className = `status ${kind}`;
}

function note(words, kind = "") {
  show($("learnt"), words !== "");
  $("learnt").textContent = words;
  $("learnt").className = `learnt ${kind}`;
}

function trouble(error, again) {
  if (!(error instanceof ServerError)) {
    say("This page has a fault; the console says which.", "error");
    throw error;
  }
  if (error.status === 403 && /key/i.test(error.message)) {
    show($("key"), true);
    $("key-input").focus();
  }
  const passing = [0, 429, 502, 503].includes(error.status);
  const words = error.status === 0 ? "Offline: the server does not answer." : sentence(error.message);
  say(passing ? `${words} Trying again…` : words, "error");
  if (passing) retry = setTimeout(again, 1000 * (error.retryAfter || 2));
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// ------------------------------------------------------------------------------------------------ controls

function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

const THEMES = ["as the system", "light", "dark"];

function paint(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-label", `Colours: ${theme}`);
  $("theme").title = `Colours: ${theme}`;
}

function listen() {
  $("source").addEventListener("input", () => {
    fit($("source"));
    soon();
  });
  $("clear").addEventListener("click", () => {
    $("source").value = "";
    fit($("source"));
    soon();
    translate();
    $("source").focus();
  });
  $("example").addEventListener("click", async () => {
    try {
      const { total } = await ask("v1/memory?limit=1");
      const { segments } = await ask(`v1/memory?limit=1&offset=${Math.floor(Math.random() * total)}`);
      if (!segments.length) return;
      $("source").value = segments[0].source;
      fit($("source"));
      soon();
      translate();
      $("source").focus();
    } catch (error) {
      trouble(error, () => {});
    }
  });
  $("system").addEventListener("change", () => {
    state.lambda = null;
    weigh();
    translate();
  });
  $("weight").addEventListener("input", () => {
    state.lambda = Number($("weight").value);
    weigh();
    soon();
  });
  $("weight-reset").addEventListener("click", () => {
    state.lambda = null;
    weigh();
    $("weight").focus();
    translate();
  });
  $("words").addEventListener("keydown", walk);
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
  $("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(state.text); // browsers have it for safe origins only
      say("Copied.");
    } catch {
      getSelection().selectAllChildren($("words"));
      say(document.execCommand("copy") ? "Copied." : "Selected: copy it with the keyboard.");
    }
  });
  $("key").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey($("key-input").value.trim());
    begin();
  });
  paint(localStorage.getItem("knnmt-theme") || THEMES[0]);
  $("theme").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
    localStorage.setItem("knnmt-theme", next);
    paint(next);
  });
}

listen();
explain(null);
begin();
