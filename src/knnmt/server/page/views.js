// The views of the page, as tabs: translating, and reviewing for those who may.

import { $, show } from "./dom.js";

const VIEWS = ["translate", "review"];

let opened = () => {};

// `onopen` is called with the name of a view when it is opened.
export function listen(onopen) {
  opened = onopen;
  for (const name of VIEWS) $(`tab-${name}`).addEventListener("click", () => open(name));
  $("tabs").addEventListener("keydown", (event) => {
    const here = VIEWS.findIndex((name) => event.target.id === `tab-${name}`);
    const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
    if (here < 0 || next === undefined) return;
    event.preventDefault();
    const name = VIEWS[(next + VIEWS.length) % VIEWS.length];
    open(name);
    $(`tab-${name}`).focus();
  });
}

export function open(name) {
  for (const each of VIEWS) {
    const isOpen = each === name;
    show($(`view-${each}`), isOpen);
    $(`tab-${each}`).setAttribute("aria-selected", String(isOpen));
    $(`tab-${each}`).tabIndex = isOpen ? 0 : -1;
  }
  show($("advanced"), name === "translate");
  opened(name);
}
