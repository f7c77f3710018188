// The user's own terms: one a line, source = target. They are sent with every translation, and stay in this tab.

import { $ } from "./dom.js";

const KEPT = "knnmt-terms";

export function listen(changed) {
  $("terms").value = sessionStorage.getItem(KEPT) || "";
  let timer;
  $("terms").addEventListener("input", () => {
    sessionStorage.setItem(KEPT, $("terms").value);
    clearTimeout(timer);
    timer = setTimeout(changed, 500);
  });
}

// Pairs of the lines that have both sides.
export function terms() {
  const pairs = $("terms").value.split("\n").map((line) => {
    const [source, ...rest] = line.split(/\t|=|→/);
    return { source: source.trim(), target: rest.join("=").trim() };
  });
  return pairs.filter(({ source, target }) => source && target);
}
