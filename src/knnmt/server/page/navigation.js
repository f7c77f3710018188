// Arrow keys move between the words of the translation, as in a toolbar.

import { choose, makeTabbable, state } from "./translation.js";

export function navigate(event) {
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
  makeTabbable(next);
  state.words[next].node.focus();
  if (state.chosen >= 0) choose(next); // the panel is open: it follows
}

// The horizontally nearest word in the next line on the screen; the same word if there is none.
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
