// The panel that tells where a word comes from.

import { $, digits, languages, make, percent } from "./dom.js";

const CONTEXT = 160; // characters of a segment on either side of the token
const TAUGHT = ["suggested", "added"]; // origins of what was taught here

export function explain(word, system, focusPiece = 0) {
  const body = $("why-body");
  $("why-title").textContent = "Why this word";
  if (!word) {
    body.replaceChildren(
      make("p", { class: "quiet" }, "Choose a word of the translation to see what the model thought of it, what the memory said, and the segments behind that."),
    );
    return;
  }
  const heading = make("p", { class: "chosen" }, make("strong", { lang: languages.target }, word.text));
  if (word.memory === null) {
    const reason = system === "base" ? "The system base is the model alone: it looks nothing up." : "There is no evidence for this word.";
    body.replaceChildren(heading, make("p", { class: "quiet" }, reason));
    return;
  }
  heading.append(make("span", { class: "quiet" }, ` ${percent(word.memory)} from memory`));
  const piece = word.pieces[focusPiece];
  body.replaceChildren(heading, ...(word.pieces.length > 1 ? [choice(word, focusPiece, system)] : []), probabilities(piece), ...segments(piece));
}

function choice(word, chosen, system) {
  const buttons = word.pieces.map((piece, n) =>
    make("button", { type: "button", class: `piece s${shade(piece.memory)}`, "aria-pressed": String(n === chosen),
      onclick: () => {
        explain(word, system, n);
        $("why-body").querySelectorAll(".piece")[n].focus();
      } }, piece.text.trim() || "␣"),
  );
  return make("div", { class: "pieces", role: "group", "aria-label": "Pieces of the word" }, make("span", { class: "quiet small" }, "Pieces"), ...buttons);
}

function probabilities(piece) {
  const rows = [
    ["Model", "p_MT", piece.p_mt, "model"],
    ["Memory", "p_kNN", piece.p_knn, "memory"],
    ["Weight", "λ", piece.lambda, "weight"],
    ["Together", "p", piece.p, "both"],
  ];
  const table = make("table", { class: "bars" }, make("caption", { class: "hidden" }, `Probabilities of ${piece.text.trim()}`));
  for (const [name, sign, value, kind] of rows) {
    const bar = make("span", { class: `bar ${kind}` });
    bar.style.setProperty("--share", value);
    table.append(
      make("tr", {}, make("th", { scope: "row" }, name, " ", symbol(sign)), make("td", { class: "track", "aria-hidden": "true" }, bar), make("td", { class: "number" }, digits(value))),
    );
  }
  const [p, l, k, m] = [piece.p, piece.lambda, piece.p_knn, piece.p_mt].map(digits);
  const rest = digits(1 - piece.lambda);
  return make("div", {}, table, make("p", { class: "formula quiet small" }, symbol("p"), ` = `, symbol("λ"), ` · `, symbol("p_kNN"), ` + (1 − `, symbol("λ"), `) · `, symbol("p_MT"), ` = ${l} · ${k} + ${rest} · ${m} = ${p}`));
}

function symbol(sign) {
  const [base, below] = sign.split("_");
  return make("var", {}, base, below ? make("sub", {}, below) : null);
}

function segments(piece) {
  const own = piece.text.trim();
  if (!piece.neighbours.length) return [make("p", { class: "quiet" }, "The memory has nothing near this place.")];
  const heaviest = piece.neighbours[0].weight || 1;
  const list = make("ol", { class: "neighbours" });
  for (const one of piece.neighbours) {
    const same = one.token.trim() === own;
    const target = make("p", { class: "target", lang: languages.target }, head(one.before), mark(one.token, same), tail(one.after));
    const bar = make("span", { class: "bar memory" });
    bar.style.setProperty("--share", one.weight / heaviest);
    const taught = TAUGHT.includes(one.origin) || (one.id || "").startsWith("taught-");
    const where = [one.origin, one.id].filter((part) => part && !part.startsWith("taught-")).join(" · ");
    list.append(
      make("li", { class: same ? "" : "other" },
        make("div", { class: "share" }, make("span", { class: "track", "aria-hidden": "true" }, bar), make("span", { class: "number small" }, percent(one.weight))),
        make("div", {}, target, make("p", { class: "source quiet", lang: languages.source }, one.source),
          make("p", { class: "origin quiet small" }, taught ? make("span", { class: "badge" }, "taught") : null, taught ? "" : where,
            same ? null : make("span", {}, `${taught || where ? " · " : ""}speaks for another word`))),
      ),
    );
  }
  return [make("h3", { class: "small quiet" }, "Segments of the memory, by their share of ", symbol("p_kNN")), list];
}

const head = (text) => (text.length > CONTEXT ? `…${text.slice(-CONTEXT).replace(/^\S*/, "")}` : text);
const tail = (text) => (text.length > CONTEXT ? `${text.slice(0, CONTEXT).replace(/\S*$/, "")}…` : text);

function mark(token, same) {
  const text = token.trim();
  const space = /^\s/.test(token) ? " " : "";
  const node = make("mark", { class: same ? "same" : "" }, text || "end");
  if (!text) node.classList.add("end");
  return make("span", {}, space, node);
}

export const shade = (share) => Math.min(9, Math.floor(10 * (share ?? 0)));
