// The documents of the page, one run on one text each: found, decoded when first needed, and named.
import { visible } from "./core.js";
import { Weights, readSteps } from "./codec.js";
import { has, state, t } from "./ui.js";

export const docs = [];
export const texts = () => [...new Set(docs.map((d) => d.text.name))];
export const runs = (text = state.ex) => docs.filter((d) => d.text.name === text).map((d) => d.model.name);
export const docOf = (text, run) =>
  docs.find((d) => d.text.name === text && d.model.name === run) ?? docs.find((d) => d.text.name === text);
export async function ready(doc) {
  // decode once, when it is first needed
  doc.loading ??= (async () => {
    doc.weights = await Weights.read({ weights: doc.weights, exact: doc.exact });
    doc.steps = await readSteps(doc.qkv, doc.text.T, doc.model.d_head);
    doc.shown = doc.text.pieces.map((p, i) => (doc.text.start[i] ? "◆" : visible(p)));
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
