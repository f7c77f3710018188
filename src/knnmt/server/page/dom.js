// DOM helpers: everything is built from nodes and text, never from HTML strings.

export const $ = (id) => document.getElementById(id);

// Make an element with attributes, listeners (onclick, …) and children; null children are skipped.
export function make(name, options = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const show = (node, shown) => {
  node.hidden = !shown;
};

// Grow a text area to its content.
export function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export const percent = (share) => (share > 0 && share < 0.005 ? "<1%" : `${Math.round(100 * share)}%`);

const WHEN = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hour12: false };

// A date of the server in the time zone of the reader.
export function time(date) {
  const read = new Date(date);
  const words = Number.isNaN(read.getTime()) ? date : read.toLocaleString("en-GB", WHEN);
  return make("time", { datetime: date }, words);
}

// The origin of a segment without who taught it and when, which the server writes at its end: `added (anna, 2026-…Z)`.
export function signature(origin) {
  const signed = /^(.*?) ?\((\S+), (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\)$/s.exec(origin);
  if (!signed) return { origin, author: "", date: "" };
  return { origin: signed[1], author: signed[2], date: signed[3] };
}

// A line of facts with dots between them; those that are missing are skipped.
export function facts(...found) {
  const there = found.filter(Boolean);
  return there.flatMap((fact, n) => (n ? [" · ", fact] : [fact]));
}

// A probability with two digits, three if it is small.
export function digits(p) {
  if (p === 0 || p >= 0.1) return p.toFixed(2);
  return p < 0.0005 ? "<0.001" : p.toFixed(3);
}
