// The panel that explains a word: probabilities, and the retrieved segments.

import { languages, offered } from "./desk.js";
import { $, counted, digits, facts, make, percent, show, signature, time } from "./dom.js";

const CONTEXT = 160; // characters of a segment shown on either side of the token
const LITTLE = 0.01; // share of p_kNN below which a segment is collapsed
const TAUGHT = ["suggested", "added"]; // origins of segments taught here
const HINT = "Select a word of the translation to see how much of it comes from the memory, and from which segments.";
let advanced = false; // whether the formula is shown

export const shade = (share) => Math.min(9, Math.floor(10 * (share ?? 0)));

export function explain(word, system, chosen = 0) {
  const body = $("why-body");
  $("why").classList.toggle("open", Boolean(word));
  show($("why-close"), Boolean(word));
  if (!word) {
    body.replaceChildren(make("p", { class: "quiet" }, HINT));
    announce("");
    return;
  }
  const heading = make("p", { class: "chosen" }, make("strong", { lang: languages.target }, word.text));
  const term = word.term ? [byGlossary(word.term)] : [];
  if (word.memory === null) {
    const alone = "This is the model alone: no memory is used.";
    const reason = system === "base" ? alone : "No evidence for this word.";
    body.replaceChildren(heading, ...term, make("p", { class: "quiet" }, reason));
    announce(word.term ? `By the glossary. ${reason}` : reason);
    return;
  }
  heading.append(make("span", { class: "quiet" }, ` ${percent(word.memory)} from memory`));
  const piece = word.pieces[chosen];
  const parts = word.pieces.length > 1 ? [choice(word, chosen, system)] : [];
  body.replaceChildren(heading, ...term, ...parts, probabilities(piece), ...segments(piece));
  body.scrollTop = 0;
  const found = counted(piece.neighbours.length, "segment");
  const chosenBy = word.term ? "by the glossary, " : "";
  announce(`${piece.text.trim()}: ${chosenBy}model ${percent(piece.p_mt)}, memory ${percent(piece.p_knn)}, ${found} listed`);
}

function byGlossary({ source, target }) {
  const badge = make("span", { class: "badge term small" }, "by the glossary");
  return make("p", {}, badge, " ", make("span", { lang: languages.source }, source), " → ", target);
}

function announce(text) {
  $("told").textContent = text;
}

function choice(word, chosen, system) {
  const group = { class: "pieces", role: "group", "aria-label": "Pieces of the word" };
  const buttons = word.pieces.map((piece, n) => {
    const choose = () => {
      explain(word, system, n);
      $("why-body").querySelectorAll(".piece")[n].focus();
    };
    const options = { type: "button", class: `piece s${shade(piece.memory)}`, "aria-pressed": String(n === chosen) };
    return make("button", { ...options, lang: languages.target, onclick: choose }, piece.text.trim() || "␣");
  });
  return make("div", group, make("span", { class: "quiet small" }, "Pieces"), ...buttons);
}

function probabilities(piece) {
  const rows = [
    ["Model", piece.p_mt, "model"],
    ["Memory", piece.p_knn, "memory"],
    ["Together", piece.p, "both"],
  ];
  const caption = make("caption", { class: "hidden" }, `Probabilities of ${piece.text.trim()}`);
  const table = make("table", { class: "bars" }, caption);
  for (const [name, value, kind] of rows) {
    const track = make("td", { class: "track", "aria-hidden": "true" }, bar(kind, value));
    const number = make("td", { class: "number" }, percent(value));
    table.append(make("tr", {}, make("th", { scope: "row" }, name), track, number));
  }
  return make("div", {}, table, formula(piece));
}

// How the probabilities are mixed, for those who want to know.
function formula(piece) {
  const [p, weight, rest, knn, mt] = [piece.p, piece.lambda, 1 - piece.lambda, piece.p_knn, piece.p_mt].map(digits);
  const words = make("p", { class: "formula quiet small" });
  words.append(symbol("p"), " = ", symbol("λ"), " · ", symbol("p_kNN"));
  words.append(" + (1 − ", symbol("λ"), ") · ", symbol("p_MT"));
  words.append(` = ${weight} · ${knn} + ${rest} · ${mt} = ${p}`);
  const details = make("details", { class: "formulas" }, make("summary", { class: "quiet small" }, "Advanced"), words);
  details.open = advanced;
  details.addEventListener("toggle", () => {
    advanced = details.open;
  });
  return details;
}

function bar(kind, share) {
  const node = make("span", { class: `bar ${kind}` });
  node.style.setProperty("--share", share);
  return node;
}

function symbol(sign) {
  const [base, below] = sign.split("_");
  return make("var", {}, base, below ? make("sub", {}, below) : null);
}

function segments(piece) {
  if (!piece.neighbours.length) return [make("p", { class: "quiet" }, "The memory has nothing similar.")];
  const title = make("h3", { class: "small quiet" }, "Segments of the memory behind it, by their share");
  const heavy = piece.neighbours.filter((one, n) => n === 0 || one.weight >= LITTLE);
  const light = piece.neighbours.slice(heavy.length);
  const found = [title, list(heavy, piece)];
  if (light.length) {
    const words = `${light.length} more with less than ${percent(LITTLE)} each`;
    found.push(make("details", {}, make("summary", { class: "quiet small" }, words), list(light, piece)));
  }
  return found;
}

function list(neighbours, piece) {
  const heaviest = piece.neighbours[0].weight || 1;
  const items = neighbours.map((one) => {
    const same = one.token.trim() === piece.text.trim();
    const track = make("span", { class: "track", "aria-hidden": "true" }, bar("memory", one.weight / heaviest));
    const share = make("div", { class: "share" }, track, make("span", { class: "number small" }, percent(one.weight)));
    const target = make("p", { class: "target", lang: languages.target });
    target.append(head(one.before), mark(one, same), tail(one.after));
    const source = make("p", { class: "source quiet", lang: languages.source }, one.source);
    return make("li", {}, share, make("div", {}, target, source, origin(one, same)));
  });
  return make("ol", { class: "neighbours" }, ...items);
}

function origin(one, same) {
  const line = make("p", { class: "facts quiet small" });
  const { origin: from, author, date } = signature(one.origin);
  const taught = TAUGHT.includes(from) || (one.id || "").startsWith("taught-");
  const badge = taught ? make("span", { class: "badge" }, "taught") : null;
  const who = [author && `by ${author}`, date && time(date)];
  const file = from.replace(/^.*[\\/]/, ""); // the folder says nothing to a translator
  const place = [offered().length > 1 && one.memory, !taught && file, !taught && one.id];
  if (badge) line.append(badge, " ");
  line.append(...facts(...who, ...place, !same && "another word"));
  return line;
}

const head = (text) => (text.length > CONTEXT ? `…${text.slice(-CONTEXT).replace(/^\S*/, "")}` : text);
const tail = (text) => (text.length > CONTEXT ? `${text.slice(0, CONTEXT).replace(/\S*$/, "")}…` : text);

function mark({ token, after }, same) {
  const text = token.trim();
  const space = /^\s/.test(token) && text ? " " : "";
  // an empty token is the end of the segment, or a space
  const node = make("mark", {}, text || (after ? "␣" : "end"));
  node.classList.toggle("same", same);
  node.classList.toggle("bare", !text);
  return make("span", {}, space, node);
}
