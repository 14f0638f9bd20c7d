// Choosing the next token, as sample.py does: temperature, then the k likeliest, then the fewest whose sum reaches p.
import { random } from "./core.js";

// { all: what is left over, [[id, p], ...] likeliest first, p after the filters; cut: how many tokens were dropped }
export function filtered(logits, { temperature, topK = 0, topP = 1 }) {
  const ids = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || (temperature === 0 ? a - b : b - a));
  if (temperature === 0) return { all: [[ids[0], 1]], cut: ids.length - 1 };
  const kept = topK > 0 && topK < ids.length ? ids.filter((i) => logits[i] >= logits[ids[topK - 1]]) : ids;
  const e = kept.map((i) => Math.exp((logits[i] - logits[ids[0]]) / temperature));
  let total = e.reduce((a, b) => a + b, 0),
    n = kept.length;
  if (topP < 1) {
    let sum = 0;
    for (n = 0; n < kept.length && (n === 0 || sum < topP * total); n++) sum += e[n];
    total = sum;
  }
  return { all: kept.slice(0, n).map((i, at) => [i, e[at] / total]), cut: ids.length - n };
}
export function draw({ all }, uniform) {
  // the token on whose share of 0..1 the number falls
  let sum = 0;
  for (const [id, p] of all) if ((sum += p) > uniform) return id;
  return all[all.length - 1][0];
}
export const drawer = (seed) => random(seed);
