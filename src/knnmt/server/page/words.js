// The words of a translation from its tokens, and the words that differ between two translations.

export const LETTERS = /[\p{L}\p{N}]/u;

// A word: { text, space (before it), pieces (its tokens), memory (their mean share) }. A piece that starts with a space
// starts a word; punctuation at either end of a word is a word of its own. `term` is the term of the glossary that the
// word is of, if any.
export function toWords(translation) {
  const words = split(translation);
  let end = 0;
  for (const word of words) {
    const start = translation.text.indexOf(word.text, end);
    if (start < 0) continue;
    end = start + word.text.length;
    word.term = translation.terms?.find((term) => term.start !== null && term.start < end && start < term.end) ?? null;
  }
  return words;
}

function split(translation) {
  if (!translation.tokens.length) {
    return translation.text.split(/\s+/).filter(Boolean).map((text, n) => word([{ text }], n > 0));
  }
  const chunks = [];
  let begins = true;
  for (const token of translation.tokens) {
    if (!token.text) {
      begins = true; // an end token: a long text is translated in pieces
    } else if (begins || /^\s/.test(token.text)) {
      chunks.push([token]);
      begins = false;
    } else {
      chunks.at(-1).push(token);
    }
  }
  return chunks.flatMap((pieces, n) => splitPunctuation(pieces, n > 0));
}

function splitPunctuation(pieces, space) {
  const lettered = pieces.map((piece) => LETTERS.test(piece.text));
  const first = lettered.indexOf(true);
  const last = lettered.lastIndexOf(true);
  if (first < 0) return [word(pieces, space)];
  const runs = [pieces.slice(0, first), pieces.slice(first, last + 1), pieces.slice(last + 1)];
  return runs.filter((run) => run.length).map((run, n) => word(run, n === 0 && space));
}

function word(pieces, space) {
  const known = pieces.filter((piece) => piece.memory !== undefined);
  const sum = known.reduce((total, piece) => total + piece.memory, 0);
  const text = pieces.map((piece) => piece.text).join("").trim();
  return { text, space, pieces, term: null, memory: known.length ? sum / known.length : null };
}

// Which of the new words are not in the longest common subsequence with the old ones.
export function changes(before, after) {
  const rows = before.length + 1;
  const columns = after.length + 1;
  if (rows * columns > 4e6) return after.map((text, n) => text !== before[n]);
  const common = new Uint16Array(rows * columns);
  for (let i = rows - 2; i >= 0; i--) {
    for (let j = columns - 2; j >= 0; j--) {
      common[i * columns + j] =
        before[i] === after[j]
          ? common[(i + 1) * columns + j + 1] + 1
          : Math.max(common[(i + 1) * columns + j], common[i * columns + j + 1]);
    }
  }
  const changed = after.map(() => true);
  for (let i = 0, j = 0; i < before.length && j < after.length; ) {
    if (before[i] === after[j]) {
      changed[j] = false;
      i++;
      j++;
    } else if (common[(i + 1) * columns + j] >= common[i * columns + j + 1]) i++;
    else j++;
  }
  return changed;
}
