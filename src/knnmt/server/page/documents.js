// Documents: uploaded, translated on the server, downloaded. Each has a row with its progress and report.

import { ask, download, request } from "./api.js";
import * as desk from "./desk.js";
import { $, counted, make, show } from "./dom.js";
import { terms } from "./glossary.js";

const POLL = 400; // milliseconds between two requests for the progress of a document
const TEMPORARY = [0, 429, 502, 503]; // while it is polled, worth asking again

let suffixes = [];

export function start(supported) {
  suffixes = supported;
  show($("choose-document"), suffixes.length > 0);
  $("document").accept = suffixes.join(",");
}

export function listen() {
  $("document").addEventListener("change", () => {
    translateAll([...$("document").files]);
    $("document").value = "";
  });
}

export function translateAll(files) {
  for (const file of files) translate(file);
  $("documents").querySelector("li:last-child")?.scrollIntoView({ block: "nearest" });
}

async function translate(file) {
  const row = new Row(file.name);
  const suffix = file.name.slice(file.name.lastIndexOf(".")).toLowerCase();
  if (!suffixes.includes(suffix)) {
    row.fail(`This kind of file cannot be translated. Supported: ${suffixes.join(" ")}`);
    return;
  }
  const form = new FormData();
  form.append("file", file);
  for (const [name, value] of Object.entries(desk.asked())) form.append(name, String(value));
  if (terms().length) form.append("glossary", JSON.stringify(terms()));
  const leaving = new AbortController();
  let job = null;
  row.onCancel(() => {
    leaving.abort();
    if (job) request(`v1/files/${job.id}`, { method: "DELETE" }).catch(() => {}); // it expires anyway
    row.remove();
  });
  try {
    job = await ask("v1/files", { method: "POST", body: form, signal: leaving.signal });
    while (job.state === "waiting" || job.state === "running") {
      row.progress(job);
      await new Promise((wake) => setTimeout(wake, POLL));
      job = await status(job, leaving.signal);
    }
    if (job.state === "done") row.finish(job);
    else row.fail(job.error || `Translation ${job.state}.`);
  } catch (error) {
    if (error.name !== "AbortError") row.fail(error.message);
  }
}

// The progress of a document; as it was, if the server is busy or cannot be reached for a moment.
async function status(job, signal) {
  try {
    return await ask(`v1/files/${job.id}`, { signal });
  } catch (error) {
    if (!TEMPORARY.includes(error.status)) throw error;
    return job;
  }
}

class Row {
  constructor(name) {
    this.name = name;
    this.bar = make("progress", { "aria-label": `Progress of ${name}` });
    this.words = make("p", { class: "small", role: "status", "aria-live": "polite" }, "Uploading…");
    this.button = make("button", { type: "button", class: "plain", "aria-label": `Cancel ${name}` }, "Cancel");
    this.actions = make("div", { class: "actions" }, this.button);
    const head = make("div", { class: "pane-head" }, make("p", { class: "name" }, name), this.actions);
    this.node = make("li", {}, head, this.bar, this.words);
    $("documents").append(this.node);
    show($("documents-card"), true);
  }

  onCancel(cancel) {
    this.cancel = cancel;
    this.button.addEventListener("click", cancel);
  }

  progress({ state, done, total }) {
    if (state === "waiting") this.words.textContent = "Queued…";
    else if (!total) this.words.textContent = "Reading…";
    else {
      this.bar.max = total;
      this.bar.value = done;
      this.words.textContent = `${done.toLocaleString("en")} of ${counted(total, "text")} translated`;
    }
  }

  finish(job) {
    this.end("Remove");
    const { units, words, exact, kept, left, problems } = job.report;
    const parts = [`${counted(units, "unit")} translated (${counted(words, "word")})`];
    parts.push(counted(exact, "exact match", "exact matches"));
    if (kept) parts.push(`${kept.toLocaleString("en")} translated before`);
    if (left) parts.push(`${left.toLocaleString("en")} left as they are`);
    parts.push(counted(job.problems, "problem"));
    this.words.textContent = `${parts.join(", ")}.`;
    if (problems.length) {
      const list = make("ul", {}, ...problems.map((problem) => make("li", {}, problem)));
      const more = job.problems > problems.length ? ` (the first ${problems.length})` : "";
      const summary = make("summary", {}, `${counted(job.problems, "problem")} to look at${more}`);
      this.node.append(make("details", { class: "small" }, summary, list));
    }
    const save = make("button", { type: "button", class: "primary" }, "Download");
    save.setAttribute("aria-label", `Download ${job.result}`);
    save.addEventListener("click", () => {
      download(`v1/files/${job.id}/result`, job.result).catch((error) => this.fail(error.message));
    });
    this.actions.prepend(save);
  }

  fail(message) {
    this.end("Close");
    this.words.textContent = message;
    this.words.setAttribute("role", "alert");
    this.node.classList.add("error");
  }

  // From now on the button removes the row, and the document with it.
  end(label) {
    show(this.bar, false);
    this.button.textContent = label;
    this.button.setAttribute("aria-label", `${label} ${this.name}`);
    if (!this.cancel) this.onCancel(() => this.remove());
  }

  remove() {
    this.node.remove();
    if (!$("documents").children.length) {
      show($("documents-card"), false);
      $("source").focus();
    }
  }
}
