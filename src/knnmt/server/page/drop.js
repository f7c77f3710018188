// Files dropped on the page: documents are translated, TMX files can be added to the memory instead.

import { $, show } from "./dom.js";

const carries = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
const zone = (event) => event.target.closest?.(".zone");

// `takers()` maps the id of a zone to what takes the files that are dropped there. The first one also takes what is
// dropped beside the zones.
export function acceptDrops(takers) {
  document.addEventListener("dragenter", (event) => {
    const ids = Object.keys(takers());
    if (!carries(event) || !ids.length) return;
    for (const node of document.querySelectorAll(".zone")) show(node, ids.includes(node.id));
    show($("veil"), true);
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) show($("veil"), false); // the pointer left the window
  });
  document.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    for (const node of document.querySelectorAll(".zone")) node.classList.toggle("over", node === zone(event));
  });
  document.addEventListener("drop", (event) => {
    show($("veil"), false);
    const files = [...(event.dataTransfer?.files || [])];
    if (!files.length) return;
    event.preventDefault(); // the browser would open the file
    const taker = takers()[zone(event)?.id] ?? Object.values(takers())[0];
    taker?.(files);
  });
}
