// Choosing the languages, swapping them, and choosing the memories.

import * as desk from "./desk.js";
import { $, make, show } from "./dom.js";

const CONTROLS = "#source-language, #target-language, #swap, #memories input";

// `changed` is called when another pair or other memories were chosen; `swap` before the languages are swapped.
export function listen(changed, swap) {
  const choose = (pair) => {
    desk.choosePair(pair);
    changed();
  };
  $("source-language").addEventListener("change", () => choose(desk.withSource($("source-language").value)));
  $("target-language").addEventListener("change", () => choose(desk.withTarget($("target-language").value)));
  const turn = () => {
    swap();
    choose(desk.swapped());
  };
  $("swap").addEventListener("click", turn);
  document.addEventListener("keydown", (event) => {
    if (event.code !== "KeyS" || !event.shiftKey || !(event.ctrlKey || event.metaKey) || event.altKey) return;
    if ($("swap").hidden || $("swap").disabled || $("view-translate").hidden) return;
    event.preventDefault();
    turn();
  });
  $("memory-choices").addEventListener("change", () => {
    desk.chooseMemories([...$("memory-choices").querySelectorAll("input:checked")].map((box) => box.value));
    changed();
  });
}

export function draw() {
  const { source, target } = desk.current();
  const only = desk.isOnlyPair();
  const name = `${source.name} to ${target.name}`;
  document.title = `knnmt: ${name}`;
  $("pair").textContent = only ? name : "";
  $("source-name").textContent = source.name;
  $("target-name").textContent = target.name;
  list($("source-language"), desk.sources(), source);
  list($("target-language"), desk.targets(), target);
  show($("swap"), Boolean(desk.swapped()));
  $("source").lang = source.code;
  $("words").lang = $("edit").lang = target.code;
  drawMemories();
}

function list(select, languages, chosen) {
  show(select, !desk.isOnlyPair());
  select.replaceChildren(...languages.map(({ code, name }) => make("option", { value: code }, name)));
  select.value = chosen.code;
}

function drawMemories() {
  const offered = desk.offered().map(({ name }) => name);
  show($("memories"), offered.length > 1);
  const boxes = [...$("memory-choices").querySelectorAll("input")];
  if (boxes.map((box) => box.value).join("\n") !== offered.join("\n")) {
    // otherwise they stay, and the focus with them
    boxes.splice(0, Infinity, ...offered.map((name) => make("input", { type: "checkbox", value: name })));
    $("memory-choices").replaceChildren(...boxes.map((box) => make("label", { class: "choice" }, box, box.value)));
  }
  for (const box of boxes) box.checked = desk.inUse().includes(box.value);
  const where = desk.learning() ?? desk.inUse()[0];
  const learns = `Corrections go to ${where}.`;
  const suggests = `Suggestions for ${where} wait for review.`;
  $("learning").textContent = desk.learns() ? learns : desk.suggests() ? suggests : "";
}

// While a translation is being corrected, its languages and memories stay.
export function lock(locked) {
  for (const control of document.querySelectorAll(CONTROLS)) control.disabled = locked;
}
