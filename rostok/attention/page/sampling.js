// Choosing the next token, as sample.py does: temperature, then the k likeliest, then the fewest whose sum reaches p.
import { random } from "./core.js";

// { all: what is left, [[id, p], ...] by id, p after the filters; cut: how many tokens were dropped }
export function filtered(logits, { temperature, topK = 0, topP = 1 }) {
  if (temperature === 0) return { all: [[logits.indexOf(Math.max(...logits)), 1]], cut: logits.length - 1 };
  const sorted = Float32Array.from(logits).sort().reverse(),
    high = sorted[0],
    weigh = (x) => Math.exp((x - high) / temperature);
  const least = topK > 0 && topK < sorted.length ? sorted[topK - 1] : -Infinity; // what equals the k-th stays too
  let n = sorted.length;
  while (n > 1 && sorted[n - 1] < least) n--;
  if (topP < 1) n = nucleus(sorted.subarray(0, n), weigh, topP);
  const kept = keep(logits, sorted[n - 1], n),
    e = kept.map((i) => weigh(logits[i])),
    total = e.reduce((a, b) => a + b, 0);
  return { all: kept.map((i, at) => [i, e[at] / total]), cut: logits.length - n };
}
function nucleus(sorted, weigh, p) {
  // how many of the likeliest sum to p or more
  let total = 0,
    sum = 0,
    n = 0;
  for (const x of sorted) total += weigh(x);
  while (n < sorted.length && (n === 0 || sum < p * total)) sum += weigh(sorted[n++]);
  return n;
}
function keep(logits, least, n) {
  // the n likeliest ids; of equal ones at the border those with higher ids
  const out = [],
    border = [];
  for (let i = 0; i < logits.length; i++) if (logits[i] >= least) (logits[i] > least ? out : border).push(i);
  return [...out, ...border.slice(border.length - (n - out.length))].sort((a, b) => a - b);
}
export function draw({ all }, uniform) {
  // the token on whose share of 0..1 the number falls
  let sum = 0;
  for (const [id, p] of all) if ((sum += p) > uniform) return id;
  return all[all.length - 1][0];
}
export const drawer = (seed) => random(seed);
export const likeliest = ({ all }, k) => [...all].sort((a, b) => b[1] - a[1]).slice(0, k);
