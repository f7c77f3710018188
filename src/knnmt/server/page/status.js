// Messages to the user: the status line, notes below the translation, errors.

import { ServerError } from "./api.js";
import { $, show } from "./dom.js";

const TEMPORARY = [0, 429, 502, 503]; // worth a retry
let retry = 0;

export const cancelRetry = () => clearTimeout(retry);

export function showStatus(text, kind = "") {
  $("status").textContent = text;
  $("status").className = `status ${kind}`;
}

export function showNote(text, kind = "") {
  show($("learnt"), text !== "");
  $("learnt").textContent = text;
  $("learnt").className = `learnt ${kind}`;
}

// Show an error; ask for a key if it is missing, try again if the error is temporary.
export function showError(error, again) {
  if (!(error instanceof ServerError)) {
    showStatus("Internal error: see the browser console.", "error");
    throw error;
  }
  if (error.status === 403 && /key/i.test(error.message)) {
    show($("key"), true);
    $("key-input").focus();
  }
  const temporary = TEMPORARY.includes(error.status);
  const text = error.status === 0 ? "Offline: the server is not responding." : sentence(error.message);
  showStatus(temporary ? `${text} Retrying…` : text, "error");
  if (temporary) retry = setTimeout(again, 1000 * (error.retryAfter || 2));
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
