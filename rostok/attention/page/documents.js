// The documents of the page, one run on one text each: found, decoded when first needed, and named.
import { lettered, visible } from "./core.js";
import { Weights, readSteps } from "./codec.js";
import { compute, live, ownText, startLive, unread } from "./live.js";
import { has, state, t } from "./ui.js";

export const docs = []; // of a static page: all there are; of a live one: the newest of each run
export const texts = () =>
  live.on ? [...new Set([...Object.keys(live.texts), "own"])] : [...new Set(docs.map((d) => d.text.name))];
export const runs = (text = state.ex) => docs.filter((d) => live.on || d.text.name === text).map((d) => d.model.name);
export function docOf(text, run) {
  const here = live.on ? docs : docs.filter((d) => d.text.name === text);
  return here.find((d) => d.model.name === run) ?? here[0];
}
export const viewOf = (doc) =>
  live.on
    ? (!ownText() && live.texts[state.ex]?.view) || { ...LAST, layer: state.l ?? 0, head: state.h ?? 0 }
    : doc.view;
export const LAST = { token: 1e6 }; // the last token, whatever the text
export const maps = (doc) => doc.model.n_layer > 0; // a window MLP has none
const shownPieces = ({ text }) =>
  lettered(text.pieces, text.partial ?? []).map((p, i) => (text.start[i] ? "◆" : visible(p)));
export function collect() {
  // what the page carries: documents, or runs that compute them
  for (const node of document.querySelectorAll("script.document")) {
    docs.push(JSON.parse(node.textContent));
    node.remove();
  }
  if (startLive()) docs.push(...live.runs.map((_, i) => unread(i)));
}
export async function ready(doc) {
  // decoded once, when first needed; or computed, when the text or a switch has changed
  if (live.on) {
    const next = await compute(doc);
    docs[doc.run] = next;
    next.shown ??= shownPieces(next);
    return next;
  }
  doc.loading ??= (async () => {
    doc.weights = await Weights.read({ weights: doc.weights, exact: doc.exact });
    doc.steps = await readSteps(doc.qkv, doc.text.T, doc.model.d_head);
    doc.shown = shownPieces(doc);
    return doc;
  })();
  return doc.loading;
}
export const textTitle = (name) => (has(`text.${name}`) ? t(`text.${name}`) : name);
export const runTitle = (name) => (has(`run.${name}`) ? t(`run.${name}`) : name);
export const headName = (l, h) => t("head.name", { l: l + 1, h: h + 1 });
export const quoted = (doc, j) => {
  // for titles and lists; the strip shows all of it
  const letters = [...doc.shown[j]];
  return letters.length > 28 ? `${letters.slice(0, 27).join("")}…` : doc.shown[j];
};
