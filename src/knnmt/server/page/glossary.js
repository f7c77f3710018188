// The user's own terms: one a line, source = target. They are sent with every translation, and stay in this tab.

import { $ } from "./dom.js";

const KEPT = "knnmt-terms";

export function listen(changed) {
  $("terms").value = sessionStorage.getItem(KEPT) || "";
  showUnread(lines());
  let timer;
  $("terms").addEventListener("input", () => {
    sessionStorage.setItem(KEPT, $("terms").value);
    showUnread(lines().slice(0, -1)); // the last one is being typed
    clearTimeout(timer);
    timer = setTimeout(changed, 500);
  });
  $("terms").addEventListener("change", () => showUnread(lines()));
}

// Pairs of the lines that have both sides.
export const terms = () => lines().filter(complete);

const complete = ({ source, target }) => source && target;

function lines() {
  return $("terms").value.split("\n").map((line) => {
    const [source, ...rest] = line.split(/\t|=|→/);
    return { source: source.trim(), target: rest.join("=").trim() };
  });
}

// Say which line has only one side.
function showUnread(given) {
  const at = given.findIndex((line) => (line.source || line.target) && !complete(line));
  $("terms-unread").textContent = at < 0 ? "" : `Line ${at + 1} is not used: write source = target.`;
}
