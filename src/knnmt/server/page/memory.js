// The memory: recently taught segments, search, removal, import and export of TMX files.

import { ask, download, hasKey, request } from "./api.js";
import { $, counted, languages, make, memories, show } from "./dom.js";

const PAGE = 20;
const POLL = 400; // milliseconds between two requests for the progress of an import

let changed = () => {}; // called with what happened when translations may change
let learns = false;
let sought = "";
let shown = 0;
let latest = 0;

export async function start(settings, onchange) {
  learns = settings.learns;
  changed = onchange;
  show($("import"), learns);
  show($("search"), settings.store);
  show($("list-title"), settings.store);
  show($("export"), settings.store);
  if (!settings.store) {
    $("memory-size").textContent = "none on this server";
    return;
  }
  await refresh();
}

export function listen() {
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
    if (!hasKey()) return; // the plain link works
    event.preventDefault();
    download("v1/memory/export?format=tmx", "memory.tmx");
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
  const { total } = await ask("v1/memory?limit=1");
  $("memory-size").textContent = counted(total, "segment");
}

async function load(offset) {
  const turn = ++latest;
  const order = sought ? "stored" : "recent";
  const query = new URLSearchParams({ offset, limit: PAGE, order, q: sought });
  const found = await ask(`v1/memory?${query}`);
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
  const target = make("p", { class: "target", lang: languages.target }, segment.target);
  const source = make("p", { class: "source quiet", lang: languages.source }, segment.source);
  const memory = memories.length > 1 ? make("p", { class: "quiet small" }, segment.memory) : null;
  const removable = learns && segment.memory === memories.at(-1); // only the last memory learns
  const row = make("li", {}, make("div", {}, target, source, memory), removable ? remove : null);
  remove.addEventListener("click", async () => {
    remove.disabled = true;
    try {
      await request(`v1/memory/${encodeURIComponent(segment.id)}`, { method: "DELETE" });
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
    let job = await ask("v1/memory/import", { method: "POST", body: file, type: "application/xml" });
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
