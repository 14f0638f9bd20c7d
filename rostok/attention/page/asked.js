// Which rows of a map are shown: that of one token or the mean over several, with ◆ or without it.
import { readout } from "./core.js";
import { state, t } from "./ui.js";
import { quoted } from "./documents.js";

// The chosen token and those added with Shift, in the text.
export function askers({ doc, token }) {
  const also = (state.also ?? "").split("_").filter(Boolean).map(Number);
  return [token, ...also.filter((q) => q !== token && q < doc.text.T)];
}
export const alsoWords = (list) => (list.length ? list.join("_") : undefined);
// "“he”", or "“he” and 2 more"
export function askersName(panel) {
  const more = askers(panel).length - 1;
  return quoted(panel.doc, panel.token) + (more ? ` ${t("also.more", { n: more })}` : "");
}
// One row without ◆: the other weights, scaled so that they sum to 1.
function withoutStart(row, start) {
  let kept = 0;
  const out = Float64Array.from(row, (w, j) => (start[j] ? 0 : w));
  for (const w of out) kept += w;
  return kept > 1e-6 ? out.map((w) => w / kept) : out;
}
export function askedRow({ doc, layer, head, token }) {
  const queries = askers({ doc, token }),
    out = new Float64Array(Math.max(...queries) + 1);
  for (const q of queries) {
    const row = doc.weights.row(layer, head, q);
    (state.hide === 1 ? withoutStart(row, doc.text.start) : row).forEach((w, k) => (out[k] += w / queries.length));
  }
  return out;
}
// The largest of the row: exact ones where a static page has them.
export function askedTops(panel, k) {
  const { doc, layer, head, token } = panel;
  if (state.hide !== 1 && askers(panel).length === 1) return doc.weights.top(layer, head, token, k);
  const list = Array.from(askedRow(panel), (w, j) => [j, w]).filter(([, w]) => w > 0);
  return list.sort((a, b) => b[1] - a[1] || b[0] - a[0]).slice(0, k);
}
// The shares of ◆, the previous token, itself and the others: the mean over the rows, ◆ always counted.
export function askedShares({ doc, layer, head, token }) {
  const queries = askers({ doc, token }),
    out = { start: 0, previous: 0, self: 0, other: 0, future: 0, sum: 0 };
  for (const q of queries) {
    const one = readout(doc.weights.row(layer, head, q), doc.text.start);
    for (const k of Object.keys(out)) out[k] += one[k] / queries.length;
  }
  return out;
}
