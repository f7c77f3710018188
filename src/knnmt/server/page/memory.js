// The memory: recently taught segments, search, removal, import and export of TMX files.

import { ask, download, hasKey, request } from "./api.js";
import * as desk from "./desk.js";
import { $, counted, facts, make, show, time } from "./dom.js";

const PAGE = 20;
const POLL = 400; // milliseconds between two requests for the progress of an import

let changed = () => {}; // called with what happened when translations may change
let sought = "";
let shown = 0;
let latest = 0;

// Show the memories that are in use.
export async function start() {
  const [any, several] = [desk.inUse().length > 0, desk.offered().length > 1];
  show($("import"), desk.learns());
  $("import-into").textContent = several ? `: it is added to ${desk.learning()}` : "";
  for (const id of ["search", "list-title", "list", "export"]) show($(id), any);
  $("about-memory").textContent = about();
  show($("more"), false);
  latest++; // a list that is under way is that of other memories
  if (any) await refresh();
  else $("memory-size").textContent = several ? "none chosen" : "none";
}

function about() {
  if (desk.offered().length > 1) return ""; // said where they are chosen
  if (!desk.inUse().length) return "There are no earlier translations for these languages: the model translates alone.";
  return `Earlier translations: new ones follow them.${desk.learns() ? " What you teach is used at once." : ""}`;
}

export function listen(onchange) {
  changed = onchange;
  $("search").addEventListener("submit", (event) => event.preventDefault());
  let timer;
  $("sought").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      sought = $("sought").value.trim();
      refresh();
    }, 250);
  });
  $("more").addEventListener("click", async () => {
    const first = shown;
    await load(first);
    $("list").children[first]?.querySelector("button")?.focus();
  });
  $("export").addEventListener("click", (event) => {
    if (!hasKey() && !desk.named()) return; // the plain link works
    event.preventDefault();
    download(`v1/memory/export?format=tmx${desk.named()}`, "memory.tmx");
  });
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    if (file) importFile(file);
    $("file").value = "";
  });
}

export async function refresh() {
  await Promise.all([load(0), size()]).catch((error) => {
    $("memory-size").textContent = error.message;
  });
}

async function size() {
  const here = desk.named();
  const { total } = await ask(`v1/memory?limit=1${here}`);
  if (here === desk.named()) $("memory-size").textContent = counted(total, "segment");
}

async function load(offset) {
  const turn = ++latest;
  const order = sought ? "stored" : "recent";
  const memory = desk.inUse().length ? desk.inUse() : null;
  const json = { offset, limit: PAGE, order, q: sought, memory }; // not in the address, which ends up in logs
  const found = await ask("v1/memory/search", { method: "POST", json });
  if (turn !== latest) return;
  const items = found.segments.map(item);
  if (offset) $("list").append(...items);
  else $("list").replaceChildren(...items);
  shown = offset + items.length;
  show($("more"), found.more);
  if (sought) $("list-title").textContent = shown ? "Results" : `No results for “${sought}”`;
  else $("list-title").textContent = shown ? "Recently taught" : "Nothing taught yet";
}

function item(segment) {
  const options = { type: "button", class: "plain remove", "aria-label": `Remove “${segment.source}”` };
  const remove = make("button", options, "Remove");
  const target = make("p", { class: "target", lang: desk.languages.target }, segment.target);
  const source = make("p", { class: "source quiet", lang: desk.languages.source }, segment.source);
  const memory = desk.offered().length > 1 ? segment.memory : "";
  const about = make("p", { class: "facts quiet small" });
  about.append(...facts(segment.author, segment.date && time(segment.date), memory));
  const removable = desk.mayRemove(segment.memory);
  const row = make("li", {}, make("div", {}, target, source, about), removable ? remove : null);
  remove.addEventListener("click", async () => {
    remove.disabled = true;
    try {
      await request(`v1/memory/${encodeURIComponent(segment.id)}?${desk.named([segment.memory])}`, { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) {
        remove.disabled = false;
        row.append(make("p", { class: "error small", role: "alert" }, error.message));
        return;
      }
    }
    await refresh();
    ($("list").querySelector("button") || $("sought")).focus();
    changed("Removed.");
  });
  return row;
}

// ---------------------------------------------------------------------------------------------------- import

export function importFile(file) {
  if (/\.(tmx|xml)$/i.test(file.name)) {
    upload(file);
    return;
  }
  show($("import-state"), true);
  show($("import-bar"), false);
  show($("import-faults"), false);
  fail(`${file.name} is not a TMX file: the memory imports TMX only.`);
}

async function upload(file) {
  const bar = $("import-bar");
  show($("import-state"), true);
  show($("import-faults"), false);
  $("import-state").classList.remove("error");
  show(bar, true);
  bar.removeAttribute("value");
  say(`Uploading ${file.name}…`);
  try {
    const into = desk.named([desk.learning()]);
    let job = await ask(`v1/memory/import?${into}`, { method: "POST", body: file, type: "application/xml" });
    while (job.state === "waiting" || job.state === "running") {
      bar.max = job.total || 1;
      bar.value = job.done;
      const reached = `${job.done.toLocaleString("en")} of ${counted(job.total, "segment")}`;
      say(job.state === "waiting" ? `${file.name} is queued…` : `Importing ${file.name}: ${reached}`);
      await new Promise((wake) => setTimeout(wake, POLL));
      job = await ask(`v1/jobs/${encodeURIComponent(job.id)}`);
    }
    show(bar, false);
    report(file, job);
    await refresh();
    changed("Imported.");
  } catch (error) {
    show(bar, false);
    fail(`${file.name} was not imported: ${error.message}`);
  }
}

function report(file, job) {
  const { added, dropped, faults } = job.report;
  const reasons = Object.entries(dropped).map(([reason, count]) => `${count.toLocaleString("en")} ${reason}`);
  const left = reasons.length ? `; dropped: ${reasons.join(", ")}` : "";
  const words = `${counted(added, "segment")} added from ${file.name}${left}.`;
  if (job.state === "done") say(words);
  else fail(`The import ${job.state}${job.error ? `: ${job.error}` : ""}. ${words}`);
  show($("import-faults"), faults.length > 0);
  $("import-faults").querySelector("summary").textContent = counted(faults.length, "error");
  $("import-faults").querySelector("ul").replaceChildren(...faults.map((fault) => make("li", {}, fault)));
}

function say(text) {
  $("import-words").textContent = text;
}

function fail(text) {
  $("import-state").classList.add("error");
  say(text);
}
