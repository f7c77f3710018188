// The translation: requested while the user types, rendered as words shaded by the memory's share.

import { ask } from "./api.js";
import * as desk from "./desk.js";
import { $, make, percent, show } from "./dom.js";
import { terms } from "./glossary.js";
import { cancelRetry, showError, showNote, showStatus } from "./status.js";
import { explain, shade } from "./why.js";
import { changes, toWords } from "./words.js";

const PAUSE = 300; // milliseconds without a key press before a translation is requested
const SLOW = 250; // milliseconds after which a request is shown as in progress
const FIRST = 8; // lines of the first request: something is to be seen soon
const MOST = 32; // lines of a request
const MOST_CHARACTERS = 4000; // of a request of several lines: it should not take longer than 32 lines of ordinary length

export const state = {
  defaults: { system: "", lambda: 0 }, // of the pair; no system: not set up yet
  lambda: null, // as chosen; null: the server's
  lines: [], // of the source, as last translated
  words: [], // of the translation, all lines
  text: "",
  chosen: -1,
};
let pending = null; // the request in progress
let timer = 0;

export function translateSoon() {
  invalidate();
  showSourceActions();
  timer = setTimeout(translate, PAUSE);
}

export function showSourceActions() {
  const empty = $("source").value === "";
  show($("clear"), !empty);
  show($("example"), empty && desk.inUse().length > 0);
}

// What is shown is no longer the translation of what is asked for, and what is under way will not be.
export function invalidate() {
  clearTimeout(timer);
  cancelRetry();
  pending?.abort();
  setStale(true);
}

// With `compared`, mark the words that changed, and call it when that is done. `done` are the translations of the first
// texts, if there are any from a try that failed.
export async function translate({ compared = null, done = [] } = {}) {
  clearTimeout(timer);
  cancelRetry();
  pending?.abort();
  if (!$("editor").hidden || !state.defaults.system) return; // being corrected, or not set up yet
  const lines = $("source").value.split("\n").map((line) => line.trim());
  while (lines.length && !lines.at(-1)) lines.pop();
  const texts = lines.filter(Boolean);
  if (!texts.length) {
    pending = null;
    $("target-pane").removeAttribute("aria-busy");
    render([], []);
    setStale(false);
    showStatus("");
    return;
  }
  const mine = (pending = new AbortController());
  const slow = setTimeout(() => showStatus("Translating…", "busy"), SLOW);
  setStale(true);
  $("target-pane").setAttribute("aria-busy", "true");
  const system = $("system").value;
  const asked = { evidence: true, ...desk.asked() };
  if (system && system !== state.defaults.system) asked.system = system;
  if (state.lambda !== null && system !== "base") asked.lambda = state.lambda;
  if (terms().length) asked.glossary = terms();
  const before = state.words.map((word) => word.text);
  try {
    for (let size = FIRST; done.length < texts.length; size = Math.min(2 * size, MOST)) {
      const json = { q: next(texts.slice(done.length, done.length + size)), ...asked };
      const { translations } = await ask("v1/translate", { method: "POST", json, signal: mine.signal });
      if (mine !== pending) return;
      done.push(...translations);
      if (done.length === texts.length) break;
      render(lines, done);
      clearTimeout(slow);
      showStatus(`Translating… ${done.length} of ${texts.length} lines`, "busy");
    }
    render(lines, done, compared ? before : null);
    setStale(false);
    showStatus("");
    compared?.();
  } catch (error) {
    if (error.name === "AbortError" || mine !== pending) return;
    if (done.length) render(lines, done);
    else render([], []); // the old one is not that of this text
    showError(error, () => translate({ compared, done }));
  } finally {
    clearTimeout(slow);
    if (mine === pending) $("target-pane").removeAttribute("aria-busy");
  }
}

// The texts of a request: one, and those that do not make it too long.
function next(texts) {
  let characters = 0;
  const end = texts.findIndex((text) => (characters += text.length) > MOST_CHARACTERS);
  return end < 0 ? texts : texts.slice(0, Math.max(1, end));
}

// While it is not the translation of the text, nor all of it, it can be neither copied nor corrected.
function setStale(stale) {
  $("target-pane").classList.toggle("stale", stale);
  $("copy").disabled = $("correct").disabled = stale;
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
  showMissed(translations.flatMap((translation) => translation.terms ?? []).filter((term) => !term.used));
  box.replaceChildren(...paragraphs);
  if (before) markChanges(before);
  else showNote("");
  choose(-1);
  const first = state.words[held >= 0 ? Math.min(held, state.words.length - 1) : 0];
  if (first) first.node.tabIndex = 0;
  if (held >= 0) first?.node.focus();
  show($("copy"), state.words.length > 0);
  show($("correct"), state.words.length > 0 && (desk.learns() || desk.suggests()));
}

function showMissed(missed) {
  const item = ({ source, target, reason }) => make("li", {}, `Glossary: “${target}” is not used for “${source}”: ${reason}`);
  $("missed").replaceChildren(...missed.map(item));
  show($("missed"), missed.length > 0);
}

function markChanges(before) {
  changes(before, state.words.map((word) => word.text)).forEach((changed, n) => {
    if (!changed) return;
    state.words[n].changed = true;
    state.words[n].node.classList.add("changed");
    label(state.words[n]);
  });
}

function button(word, number) {
  const kind = word.term ? "word term" : "word";
  const options = { type: "button", class: `${kind} s${shade(word.memory)}`, tabindex: "-1", "aria-pressed": "false" };
  word.node = make("button", { ...options, onclick: () => choose(number) }, word.text);
  label(word);
  return word.node;
}

function label(word) {
  const share = word.memory === null ? "" : `, ${percent(word.memory)} from memory`;
  const term = word.term ? ", by the glossary" : "";
  word.node.setAttribute("aria-label", `${word.text}${share}${term}${word.changed ? ", changed" : ""}`);
}

export function choose(number) {
  state.words[state.chosen]?.node.setAttribute("aria-pressed", "false");
  state.chosen = number;
  const word = state.words[number];
  word?.node.setAttribute("aria-pressed", "true");
  if (word) {
    makeTabbable(number);
    word.node.scrollIntoView({ block: "nearest" }); // on a phone the panel would cover it
  }
  explain(word, $("system").value);
}

// Exactly one word can be reached with the Tab key; the arrow keys move between words.
export function makeTabbable(number) {
  for (const word of state.words) word.node.tabIndex = -1;
  state.words[number].node.tabIndex = 0;
}
