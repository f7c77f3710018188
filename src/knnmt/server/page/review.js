// The review queue: suggestions of those who may not teach, to be accepted, edited and accepted, or rejected. Who made
// a suggestion sees it too, and may withdraw it.

import { ask, request, ServerError } from "./api.js";
import * as desk from "./desk.js";
import { $, counted, facts, fit, make, show, time } from "./dom.js";
import { changes } from "./words.js";

const PAGE = 20; // suggestions that are shown, and translated to compare
const EVERY = 60; // seconds between two looks at the length of the queue

let changed = () => {};
let accepted = 0; // since the view was opened: the memories have changed
let waiting = 0; // suggestions in the queue
let timer = 0;

// `onchange` is called when the view is left and something was accepted.
export function listen(onchange) {
  changed = onchange;
  $("suggestions").addEventListener("keydown", keys);
  $("review-more").addEventListener("click", async () => {
    const first = $("suggestions").children.length;
    await load(first);
    focusOn($("suggestions").children[first]);
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && desk.sees()) count();
  });
}

export function start() {
  clearInterval(timer);
  if (!desk.sees()) return;
  $("tab-review").firstChild.textContent = desk.reviews() ? "Review" : "Suggestions";
  $("review-title").textContent = desk.reviews() ? "Suggestions to review" : "Your suggestions";
  $("review-nothing").textContent = desk.reviews() ? "Nothing to review." : "None of your suggestions is waiting.";
  timer = setInterval(() => document.hidden || count(), 1000 * EVERY);
  count();
}

export async function open(opened) {
  if (opened) {
    accepted = 0;
    say("");
    await load(0);
  } else if (accepted) {
    accepted = 0;
    changed();
  }
}

// ------------------------------------------------------------------------------------------------- the queue

async function count() {
  try {
    showCount((await ask("v1/review?limit=1")).total);
  } catch {
    // the badge stays as it was
  }
}

function showCount(total) {
  waiting = total;
  $("waiting").textContent = waiting.toLocaleString("en");
  $("waiting").setAttribute("aria-label", `${counted(waiting, "suggestion")} waiting`);
  show($("waiting"), waiting > 0);
}

async function load(offset) {
  try {
    const { total, suggestions } = await ask(`v1/review?offset=${offset}&limit=${PAGE}`);
    const rows = suggestions.map((suggestion) => new Row(suggestion));
    if (offset) $("suggestions").append(...rows.map(({ node }) => node));
    else $("suggestions").replaceChildren(...rows.map(({ node }) => node));
    showCount(total);
    showEmpty(total);
    show($("review-more"), total > offset + rows.length);
    await compare(rows);
  } catch (error) {
    say(`The queue cannot be shown: ${error.message}.`, "error");
    if (!(error instanceof ServerError)) throw error;
  }
}

function showEmpty(total) {
  show($("review-empty"), total === 0);
  show($("review-keys"), total > 0 && desk.reviews());
}

// Show what each text is translated to now: what the memory has for it, or what the model makes of it.
async function compare(rows) {
  for (const row of rows) if (row.suggestion.current !== null) row.showNow(row.suggestion.current, "In the memory");
  const unknown = rows.filter(({ suggestion }) => suggestion.current === null);
  const groups = Map.groupBy(unknown, ({ suggestion }) => suggestion.memory);
  for (const [name, some] of groups) {
    const { source, target } = desk.memoryOf(name) ?? {};
    const q = some.map(({ suggestion }) => suggestion.source);
    try {
      const json = { q, source, target, memories: [name] };
      const { translations } = await ask("v1/translate", { method: "POST", json });
      some.forEach((row, n) => row.showNow(translations[n].text, "Translated now"));
    } catch (error) {
      for (const row of some) row.failNow(error.message);
    }
  }
}

function say(text, kind = "") {
  $("review-status").textContent = text;
  $("review-status").className = `status ${kind}`;
}

// -------------------------------------------------------------------------------------------------- keyboard

// ↑ and ↓ go from suggestion to suggestion; A, E and R decide on the one that has the focus.
function keys(event) {
  const node = event.target.closest(".suggestions > li");
  if (!node || event.target.matches("textarea") || event.ctrlKey || event.altKey || event.metaKey) return;
  const steps = { ArrowDown: node.nextElementSibling, ArrowUp: node.previousElementSibling };
  if (Object.hasOwn(steps, event.key)) {
    event.preventDefault();
    focusOn(steps[event.key]);
    return;
  }
  const offered = [...node.querySelectorAll("button:not([hidden], :disabled)")];
  const action = offered.find((each) => each.getAttribute("aria-keyshortcuts").toLowerCase() === event.key.toLowerCase());
  if (!action || event.repeat) return;
  event.preventDefault();
  action.click();
}

// To the first thing to do about a suggestion.
function focusOn(node) {
  node?.querySelector("button:not([hidden])")?.focus();
  node?.scrollIntoView({ block: "nearest" });
}

// ---------------------------------------------------------------------------------------------- a suggestion

class Row {
  constructor(suggestion) {
    this.suggestion = suggestion;
    const { source, target } = desk.memoryOf(suggestion.memory) ?? { source: "", target: "" };
    this.now = make("dd", { class: "quiet", lang: target }, "…");
    this.suggested = make("dd", { class: "suggested", lang: target }, suggestion.target);
    const texts = make("dl", { class: "texts" });
    texts.append(make("dt", {}, "Source"), make("dd", { lang: source }, suggestion.source));
    texts.append((this.nowName = make("dt", {}, "Now")), this.now, make("dt", {}, "Suggested"), this.suggested);
    this.field = make("textarea", { class: "edited", rows: "1", lang: target, "aria-label": "Edited suggestion" });
    this.field.addEventListener("input", () => fit(this.field));
    this.field.addEventListener("keydown", (event) => this.editKey(event));
    this.accept = this.button("Accept", "A", () => this.decide("accept"), "primary");
    this.edit = this.button("Edit…", "E", () => this.editing(true));
    this.decides = desk.mayReview(suggestion.memory);
    const dismiss = this.decides ? "Reject" : "Withdraw";
    this.reject = this.button(`${dismiss}…`, "R", () => this.rejecting(true), "plain");
    this.sure = this.button(dismiss, "R", () => this.decide("reject"), "danger");
    this.keep = this.button("Keep", "Escape", () => this.rejecting(false), "plain");
    this.cancel = this.button("Cancel", "Escape", () => this.editing(false), "plain");
    this.question = make("span", { class: "small" }, `${dismiss} it for good?`);
    this.error = make("p", { class: "error small", role: "alert" });
    const about = make("p", { class: "facts quiet small" });
    about.append(...facts(suggestion.author, time(suggestion.date), suggestion.memory));
    const actions = [this.accept, this.edit, this.reject, this.question, this.sure, this.keep, this.cancel];
    const foot = make("div", { class: "foot" }, about, make("div", { class: "actions" }, ...actions));
    this.node = make("li", {}, texts, foot, this.error);
    this.state("");
  }

  button(words, key, onclick, kind = "") {
    const name = `${words} “${this.suggestion.source}”`;
    return make("button", { type: "button", class: kind, "aria-label": name, "aria-keyshortcuts": key, onclick }, words);
  }

  // "", "editing" or "rejecting": which actions there are.
  state(name) {
    show(this.reject, !name);
    show(this.edit, !name && this.decides);
    show(this.accept, name !== "rejecting" && this.decides);
    show(this.cancel, name === "editing");
    for (const each of [this.question, this.sure, this.keep]) show(each, name === "rejecting");
  }

  showNow(text, name) {
    this.nowName.textContent = name;
    this.now.textContent = text;
    const words = this.suggestion.target.split(/(\s+)/);
    const marks = changes(text.split(/\s+/), words.filter((_, n) => n % 2 === 0));
    const parts = words.map((word, n) => (n % 2 === 0 && marks[n / 2] && word ? make("ins", {}, word) : word));
    if (this.suggested.firstChild !== this.field) this.suggested.replaceChildren(...parts);
    this.parts = parts;
  }

  failNow(message) {
    this.now.textContent = `cannot be translated: ${message}`;
  }

  editing(on) {
    this.state(on ? "editing" : "");
    if (!on) {
      this.suggested.replaceChildren(...(this.parts ?? [this.suggestion.target]));
      this.edit.focus();
      return;
    }
    this.field.value = this.suggestion.target;
    this.suggested.replaceChildren(this.field);
    fit(this.field);
    this.field.focus();
  }

  editKey(event) {
    if (event.key === "Escape") this.editing(false);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.decide("accept");
    }
  }

  rejecting(on) {
    this.state(on ? "rejecting" : "");
    (on ? this.sure : this.reject).focus();
  }

  async decide(decision) {
    const edited = this.cancel.hidden ? this.suggestion.target : this.field.value.trim();
    if (!edited) {
      this.error.textContent = "The translation is empty.";
      return;
    }
    const buttons = this.node.querySelectorAll("button");
    for (const each of buttons) each.disabled = true;
    const json = edited === this.suggestion.target ? {} : { target: edited };
    try {
      const path = `v1/review/${encodeURIComponent(this.suggestion.id)}/${decision}`;
      await request(path, { method: "POST", json: decision === "accept" ? json : undefined });
    } catch (error) {
      if (error.status !== 404) {
        this.error.textContent = error.message;
        for (const each of buttons) each.disabled = false;
        return;
      }
      this.leave("Somebody else decided on this one.");
      return;
    }
    if (decision === "accept") accepted++;
    this.leave(decision === "accept" ? "Accepted: the memory has it now." : this.decides ? "Rejected." : "Withdrawn.");
  }

  // Make room for the next one, which gets the focus.
  leave(message) {
    const next = this.node.nextElementSibling ?? this.node.previousElementSibling;
    this.node.remove();
    say(message);
    showCount(Math.max(0, waiting - 1));
    if (next) focusOn(next);
    else if (waiting) load(0).then(() => focusOn($("suggestions").firstElementChild));
    else {
      showEmpty(0);
      $("review-title").focus();
    }
  }
}
