// Correcting a translation, teaching the correction, and reporting what it changed.

import { ask } from "./api.js";
import { lock } from "./choices.js";
import * as desk from "./desk.js";
import { $, counted, fit, show } from "./dom.js";
import * as memory from "./memory.js";
import { showNote } from "./status.js";
import { state, translate } from "./translation.js";
import { LETTERS } from "./words.js";

export function edit(open) {
  show($("editor"), open);
  show($("words"), !open);
  show($("legend"), !open && desk.inUse().length > 0);
  show($("copy"), !open && state.words.length > 0);
  show($("correct"), !open && state.words.length > 0);
  show($("teach"), open);
  show($("cancel"), open);
  $("teach").textContent = desk.learns() ? "Teach" : "Suggest";
  $("edit-action").textContent = desk.learns() ? "to teach" : "to suggest";
  show($("edit-review"), !desk.learns());
  $("source").readOnly = open;
  lock(open);
  if (open) {
    showNote("");
    $("edit").value = state.text;
    fit($("edit"));
    $("edit").focus();
  } else {
    $("correct").focus();
  }
}

export async function teach() {
  const written = $("edit").value.replace(/\n+$/, "").split("\n").map((line) => line.trim());
  const had = state.text.split("\n");
  if (written.length !== state.lines.length) {
    const [source, target] = [state.lines, written].map((lines) => counted(lines.length, "line"));
    showNote(`The source has ${source}, the translation ${target}: they must match line by line.`, "error");
    return;
  }
  const single = state.lines.length === 1; // teaching it unchanged confirms it
  const pairs = state.lines.map((line, n) => [line, written[n], had[n]]);
  const lessons = pairs.filter(([line, now, before]) => line && now && (now !== before || single));
  if (!lessons.length) {
    showNote("Nothing was changed: there is nothing to learn.", "error");
    return;
  }
  $("teach").disabled = true;
  const json = lessons.map(([source, target]) => ({ source, target }));
  try {
    await ask(`v1/memory?${desk.named()}`, { method: "POST", json });
    edit(false);
    if (!desk.learns()) {
      showNote(`${counted(lessons.length, "suggestion")} sent for review.`);
      return;
    }
    const taught = written.join("\n");
    await Promise.all([translate({ compared: () => reportLesson(taught) }), memory.refresh()]);
  } catch (error) {
    showNote(`${desk.learns() ? "Not learnt" : "Not sent"}: ${error.message}`, "error");
  } finally {
    $("teach").disabled = false;
  }
}

// What a removal or an import changed.
export const reportChange = (what) => showNote(`${what} ${marked()}`);

function reportLesson(taught) {
  if ($("system").value === "base") {
    showNote("Learnt. The system chosen under Advanced does not use the memory: choose another to see the effect.");
  } else if (squeezed(state.text) === squeezed(taught)) {
    showNote(`Learnt: the translation now matches yours. ${changedWords() ? marked() : ""}`);
  } else {
    showNote(`Learnt. ${marked()} It still differs from yours: Advanced has the weight of the memory.`);
  }
}

const changedWords = () => state.words.filter((word) => word.changed && LETTERS.test(word.text)).length;

function marked() {
  const count = changedWords();
  return count ? `${counted(count, "word")} changed (underlined).` : "The translation is unchanged.";
}

const squeezed = (text) => text.replace(/\s+/g, " ").trim();
