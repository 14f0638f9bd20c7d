// The page's side of a live model: it starts the worker, asks it, and turns its answers into documents.
import { Maps } from "./codec.js";
import { $, set, state } from "./ui.js";

export const live = { on: false, runs: [], texts: {}, products: "" };
let worker = null,
  count = 0;
const waiting = new Map(); // questions without an answer: number -> { done, fail, step }

export function ask(what, asked = {}, step = null) {
  // step: called with each message of a question that gives many
  const number = ++count;
  worker.postMessage({ number, ask: what, ...asked });
  const answer = new Promise((done, fail) => waiting.set(number, { done, fail, step }));
  return Object.assign(answer, { number });
}
function heard({ data: { number, value, error, step } }) {
  const asked = waiting.get(number);
  if (step) return asked?.step?.(step);
  waiting.delete(number);
  return error ? asked.fail(new Error(error)) : asked.done(value);
}
export function startLive() {
  // true where the page carries a model
  const node = $("#runs");
  if (node?.type !== "application/json") return false;
  const { runs, texts, tokenizer } = JSON.parse(node.textContent),
    weights = [...document.querySelectorAll("script.weights")];
  const code = new Blob([$("#worker").textContent], { type: "text/javascript" });
  worker = new Worker(URL.createObjectURL(code));
  worker.addEventListener("message", heard);
  Object.assign(live, { on: true, runs, texts });
  const packed = runs.map(({ config, header }, i) => ({ config, header, data: weights[i].textContent }));
  live.opened = ask("open", { runs: packed, tokenizer, code: state.plain === "1" ? "" : $("#products").textContent });
  live.opened.then(({ products }) => (live.products = products));
  for (const part of [node, ...weights]) part.remove();
  return true;
}

// ---- what the page asks for: the text, and what is switched off
export const ownText = () => state.ex === "own" && state.text !== undefined;
export const liveText = () => (ownText() ? state.text : (live.texts[state.ex]?.text ?? ""));
const numbers = (words) =>
  (words ?? "")
    .split("_")
    .filter(Boolean)
    .map((word) => word.split(/[.-]/).map(Number));
export const closedKeys = () => numbers(state.cut);
export const closedTo = (doc, q) => (doc.edit?.closed ?? []).filter(([t]) => t === q).map(([, k]) => k);
export function toggleKey(q, k) {
  // may query q look at key k? in all heads
  const cut = closedKeys(),
    rest = cut.filter(([a, b]) => a !== q || b !== k),
    now = rest.length < cut.length ? rest : [...cut, [q, k]];
  set({ cut: now.map((pair) => pair.join("-")).join("_") || undefined });
}
export const silentHeads = () => numbers(state.off).map(([l, h]) => [l - 1, h - 1]);
export const silentMlps = () => numbers(state.mlp).map(([l]) => l - 1);
export function changesOf(model) {
  const inside = ([l, h]) => l >= 0 && l < model.n_layer && h >= 0 && h < model.n_head;
  const heads = silentHeads()
    .filter(inside)
    .map(([l, h]) => l * model.n_head + h)
    .sort((a, b) => a - b);
  return { heads, mlps: silentMlps().filter((l) => l >= 0 && l < model.n_layer), closed: closedKeys() };
}
export const anyChange = () => Boolean(state.off || state.mlp || state.cut);

// A document before it is computed: enough for the page to know what it may ask for.
export function unread(run) {
  const { model } = live.runs[run];
  return {
    run,
    model,
    heads: [],
    even: {},
    losses: null,
    steps: [],
    text: { name: state.ex, T: model.context, pieces: [], start: [] },
  };
}
export async function compute(doc) {
  const { run, model } = doc,
    text = liveText(),
    edit = changesOf(model),
    key = JSON.stringify([text, edit]);
  if (doc.key === key) return doc;
  const { maps, text: read, ...rest } = await ask("document", { run, text, edit });
  const weights = new Maps(maps, model.n_layer, model.n_head, read.T),
    { heads, even } = doc; // kinds of the text before, until asked
  return {
    ...unread(run),
    heads,
    even,
    ...rest,
    key,
    edit,
    weights,
    text: { ...read, name: state.ex },
    live: true,
    asked: new Map(),
  };
}
export async function kinds(doc) {
  // of the heads, on this text; true where they have come
  if (!doc.live || doc.kinds) return Boolean(doc.kinds);
  doc.kinds = true;
  Object.assign(doc, await ask("heads", { run: doc.run }));
  return true;
}
// q, k and v of one head, asked for once a document.
export function liveSteps(doc, layer, head) {
  const key = `${layer}.${head}`;
  if (!doc.asked.has(key)) {
    const entry = { value: null, ready: ask("steps", { run: doc.run, layer, head }) };
    entry.ready.then((value) => (entry.value = value));
    doc.asked.set(key, entry);
  }
  return doc.asked.get(key);
}
// For the browser's console, and for tests: rostok.ask("logits", { run: 0, t: 3 }) gives numbers, not pictures.
globalThis.rostok = { ask, live };
