// The desk: the pair of languages and the memories that requests name. The browser remembers both.

import { ask } from "./api.js";

const PAIR = "knnmt-pair"; // in localStorage: "de en"
const MEMORIES = "knnmt-memories"; // in localStorage: names by pair
const ROLES = ["translate", "teach", "review", "admin"];

export const languages = { source: "", target: "" }; // codes
export const caller = { name: "", role: "translate", keys: false };

let pairs = [];
let memories = []; // all that the caller may use
let pair = null;
let chosen = []; // names, the most specific first

export async function load() {
  const [me, known] = await Promise.all([ask("v1/me"), ask("v1/memories")]);
  ({ pairs } = me);
  ({ memories } = known);
  Object.assign(caller, { name: me.name, role: me.role, keys: me.keys });
  const kept = localStorage.getItem(PAIR);
  choosePair(pairs.find((each) => id(each) === kept) ?? pairs[0]);
}

// ------------------------------------------------------------------------------------------------- languages

const id = ({ source, target }) => `${source.code} ${target.code}`;

export const current = () => pair;
export const isOnlyPair = () => pairs.length === 1;
export const sources = () => distinct(pairs.map(({ source }) => source));
export const targets = () => pairs.filter(({ source }) => source.code === pair.source.code).map(({ target }) => target);

const distinct = (named) => [...new Map(named.map((language) => [language.code, language])).values()];

// The pair with another source, if possible to the same target; or with another target.
export const withSource = (code) =>
  pairOf(code, languages.target) ?? pairOf(code, languages.source) ?? pairs.find(({ source }) => source.code === code);
export const withTarget = (code) => pairOf(languages.source, code);
export const swapped = () => pairOf(languages.target, languages.source);

const pairOf = (from, to) => pairs.find(({ source, target }) => source.code === from && target.code === to);

export function choosePair(wanted) {
  pair = wanted;
  Object.assign(languages, { source: pair.source.code, target: pair.target.code });
  if (!isOnlyPair()) localStorage.setItem(PAIR, id(pair));
  const usable = offered().map(({ name }) => name);
  const kept = rememberedMemories()[id(pair)];
  chosen = kept ? usable.filter((name) => kept.includes(name)) : pair.memories;
}

// -------------------------------------------------------------------------------------------------- memories

// The memories for the pair: first those that are used unless others are chosen, the most specific first.
export function offered() {
  const usual = pair.memories.map(memoryOf).filter(Boolean);
  const others = memories.filter((each) => !usual.includes(each) && fits(each));
  return [...usual, ...others];
}

const alike = (one, other) => one === other || one.split("-")[0] === other || other.split("-")[0] === one;
const fits = ({ source, target }) => alike(source, languages.source) && alike(target, languages.target);
export const memoryOf = (name) => memories.find((each) => each.name === name);

export const inUse = () => chosen;

export function chooseMemories(names) {
  chosen = offered().map(({ name }) => name).filter((name) => names.includes(name));
  localStorage.setItem(MEMORIES, JSON.stringify({ ...rememberedMemories(), [id(pair)]: chosen }));
}

function rememberedMemories() {
  try {
    return JSON.parse(localStorage.getItem(MEMORIES)) ?? {};
  } catch {
    return {}; // not ours
  }
}

const isDefault = () => chosen.join("\n") === pair.memories.join("\n");

// ----------------------------------------------------------------------------------------- rights and requests

// The memory that a correction is stored in at once; null if there is none.
export const learning = () => chosen.find((name) => memoryOf(name)?.learns) ?? null;
export const learns = () => learning() !== null;

// Whether a correction waits for a reviewer.
export const suggests = () => !learns() && chosen.length > 0 && pair.learning !== null;
export const mayRemove = (name) => Boolean(memoryOf(name)?.learns);
export const mayReview = (name) => ROLES.indexOf(memoryOf(name)?.role) >= ROLES.indexOf("review");

// Whether suggestions concern the caller, and whether they decide on them. Without keys everybody teaches at once.
export const reviews = () => caller.keys && memories.some(({ name }) => mayReview(name));
export const sees = () => reviews() || (caller.keys && pairs.some((each) => each.review));

// What a request says of languages and memories: nothing where it is what the server does anyway.
export function asked() {
  if (isDefault()) return isOnlyPair() ? {} : { ...languages };
  return { ...languages, memories: chosen };
}

// The same for requests about memories, as a query: `&memory=…`. A memory has its languages.
export function named(names = chosen) {
  if (names === chosen && isDefault() && pair === pairs[0]) return "";
  return names.map((name) => `&memory=${encodeURIComponent(name)}`).join("");
}
