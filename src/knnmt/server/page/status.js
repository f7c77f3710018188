// Messages to the user: the status line, notes below the translation, errors in its place.

import { hasKey, ServerError } from "./api.js";
import { $, show } from "./dom.js";

const TEMPORARY = [0, 429, 502, 503]; // worth a retry
const PATIENCE = 60; // seconds: a limit per day is not waited for
const TOO_LONG = /\((\d+)\) exceeds text limit \((\d+)\) of (\w+)/; // LibreTranslate's words
let timer = 0;
let retry = () => {};

export const cancelRetry = () => clearTimeout(timer);

export function listen() {
  $("retry").addEventListener("click", () => {
    cancelRetry();
    $("source").focus(); // the button goes
    retry();
  });
}

export function showStatus(text, kind = "") {
  show($("failed"), false);
  $("status").textContent = text;
  $("status").className = `status ${kind}`;
}

export function showNote(text, kind = "") {
  show($("learnt"), text !== "");
  $("learnt").textContent = text;
  $("learnt").className = `learnt ${kind}`;
}

// Ask for a key. A missing one is no error, a wrong one is.
export function askForKey(message) {
  for (const id of ["view-translate", "view-review", "tabs", "who", "advanced"]) show($(id), false);
  show($("key"), true);
  $("key-message").textContent = message;
  $("key-message").classList.toggle("error", hasKey());
  $("key-input").focus();
}

// Show an error; ask for a key if it is missing, try again if the error is temporary.
export function showError(error, again) {
  if (!(error instanceof ServerError)) {
    showFailure("Internal error: see the browser console.");
    throw error;
  }
  if (error.status === 403 && /API key/i.test(error.message)) {
    askForKey(sentence(error.message));
    return;
  }
  retry = again;
  const temporary = TEMPORARY.includes(error.status) && error.retryAfter <= PATIENCE;
  const text = error.status === 0 ? "Offline: the server is not responding." : sentence(error.message);
  showFailure(temporary ? `${text} Retrying…` : text);
  show($("retry"), error.status !== 400); // the same text would be refused again
  if (temporary) timer = setTimeout(again, 1000 * (error.retryAfter || 2));
}

function showFailure(text) {
  showStatus("");
  $("failure").textContent = text;
  show($("failed"), true);
}

// What the server says, in a translator's words where it has a program's.
function sentence(text) {
  const [, size, limit, what] = TOO_LONG.exec(text) ?? [];
  if (size) return `This text is too long: ${count(size)} ${what}, and ${count(limit)} is the limit. Shorten it, or translate it as a file.`;
  return withStop(text.replace(/^Invalid request: /, ""));
}

const count = (digits) => Number(digits).toLocaleString("en");
const withStop = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;
