// Small helpers: everything is made of nodes and text, never of HTML in strings.

export const languages = { source: "", target: "" }; // codes, for the lang of what is shown

export const $ = (id) => document.getElementById(id);

// An element with attributes, listeners (onclick, …) and children; what is null is left out.
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

export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export const percent = (share) => `${Math.round(100 * share)} %`;

// A probability: two digits, three for a small one.
export function digits(p) {
  if (p === 0 || p >= 0.1) return p.toFixed(2);
  return p < 0.0005 ? "<0.001" : p.toFixed(3);
}
