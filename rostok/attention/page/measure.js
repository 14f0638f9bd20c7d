// What a document says about a run on a text, computed from the logits and the maps; explorer.py computes the same.
// Rows that have not changed since the last text keep their numbers: `from` is the first that has.

import { keysOf } from "./kinds.js";

// ---- guesses: for every row the logarithm of the sum and the likeliest tokens; for every token its loss and rank
const TOP = 5;
export function guessesOf(logits, products, k = TOP) {
  // { sum: log of the sum of exponentials, top: [[id, p], ...] }
  let high = -Infinity;
  const ids = [],
    least = () => (ids.length < k ? -Infinity : logits[ids[k - 1]]);
  let bar = -Infinity;
  for (let i = 0; i < logits.length; i++) {
    if (logits[i] > high) high = logits[i];
    if (logits[i] <= bar) continue;
    let at = ids.length;
    while (at > 0 && logits[ids[at - 1]] < logits[i]) at--;
    ids.splice(at, 0, i);
    ids.length = Math.min(ids.length, k);
    bar = least();
  }
  const total = high + Math.log(products.sumExp(logits, high));
  return { sum: total, top: ids.map((i) => [i, Math.exp(logits[i] - total)]) };
}
export class Guesses {
  rows = [];
  own = []; // for token t: { nll, rank }, from row t - 1
  update(ids, logits, from, products) {
    this.rows.length = Math.min(this.rows.length, from);
    for (let t = from; t < ids.length; t++) this.rows.push(guessesOf(logits(t), products));
    this.own.length = Math.max(1, Math.min(this.own.length, from));
    for (let t = this.own.length; t < ids.length; t++)
      this.own.push(this.#score(logits(t - 1), ids[t], this.rows[t - 1].sum));
  }
  #score(row, id, sum) {
    let rank = 1;
    for (let i = 0; i < row.length; i++) if (row[i] > row[id]) rank++;
    return { nll: sum - row[id], rank };
  }
}
// The field `losses` of a document. classes: start; new; seen (was earlier in the text); pair (was after the same token).
export function lossesOf(ids, guesses, name) {
  const named = ({ top }) => top.map(([id, p]) => [name(id), p]),
    last = guesses.rows[ids.length - 1];
  const out = { nll: [null], p: [null], rank: [null], class: ["start"], top: [[]], after: named(last) };
  const seen = new Set([ids[0]]),
    pairs = new Set();
  for (let t = 1; t < ids.length; t++) {
    const { nll, rank } = guesses.own[t],
      pair = `${ids[t - 1]},${ids[t]}`;
    out.nll.push(nll);
    out.p.push(Math.exp(-nll));
    out.rank.push(rank);
    out.class.push(pairs.has(pair) ? "pair" : seen.has(ids[t]) ? "seen" : "new");
    out.top.push(named(guesses.rows[t - 1]));
    seen.add(ids[t]);
    pairs.add(pair);
  }
  return { ...out, summary: summaryOf(out) };
}
function summaryOf(losses) {
  const out = {};
  for (const kind of ["new", "seen", "pair"]) {
    const at = losses.class.flatMap((c, t) => (c === kind ? [t] : []));
    const mean = (xs) => (at.length ? at.reduce((a, t) => a + xs[t], 0) / at.length : null);
    out[kind] = { n: at.length, loss: mean(losses.nll), p: mean(losses.p) };
  }
  return out;
}

// ---- kinds of heads: the mean weight that goes where a kind of head looks
const LOOKS = ["induction", "previous", "same", "start", "self"]; // in the order in which a label is given
const SURE = [
  [0.4, 5, "strong"],
  [0.2, 3, "partial"],
]; // least score, least multiple of even attention
export class HeadScores {
  rows = []; // for each query a Float64Array: heads x (5 kinds, entropy), NaN where a kind has no key
  even = [];
  update(ids, start, heads, row, from) {
    // row(head, t): the weights of one query
    this.rows.length = this.even.length = Math.min(this.rows.length, from);
    for (let t = this.rows.length; t < ids.length; t++) {
      const keys = keysOf(ids, start, t),
        lists = LOOKS.map((kind) => keys[kind]),
        out = new Float64Array(6 * heads);
      for (let h = 0; h < heads; h++) this.#measure(out.subarray(6 * h, 6 * h + 6), row(h, t), lists);
      this.rows.push(out);
      this.even.push(lists.map((list) => (list.length ? list.length / (t + 1) : NaN)));
    }
  }
  #measure(out, row, lists) {
    lists.forEach((list, kind) => {
      let sum = 0;
      for (const j of list) sum += row[j];
      out[kind] = list.length ? sum : NaN;
    });
    let bits = 0;
    for (const w of row) if (w > 0) bits -= w * Math.log(w);
    out[5] = row.length > 1 ? bits / Math.log(row.length) : NaN;
  }
  #mean(value, first) {
    let sum = 0,
      n = 0;
    for (let t = first; t < this.rows.length; t++) {
      const x = value(t);
      if (!Number.isNaN(x)) [sum, n] = [sum + x, n + 1];
    }
    return n ? sum / n : null;
  }
  evenScores() {
    return Object.fromEntries(LOOKS.map((kind, k) => [kind, this.#mean((t) => this.even[t][k], 2)]));
  }
  records(perLayer) {
    // the field `heads` of a document
    const even = this.evenScores(),
      heads = this.rows.length ? this.rows[0].length / 6 : 0;
    return Array.from({ length: heads }, (_, at) => {
      const scores = {};
      LOOKS.forEach((kind, k) => {
        const v = this.#mean((t) => this.rows[t][6 * at + k], 2);
        scores[kind] = v === null ? null : { v };
      });
      const spread = this.#mean((t) => this.rows[t][6 * at + 5], 1);
      const [label, confidence] = labelOf(scores, even);
      return {
        layer: Math.floor(at / perLayer),
        head: at % perLayer,
        label,
        confidence,
        scores: { ...scores, entropy: spread === null ? null : { v: spread } },
      };
    });
  }
}
function labelOf(scores, even) {
  for (const [least, times, sure] of SURE) {
    for (const kind of LOOKS)
      if (scores[kind] && scores[kind].v >= least && scores[kind].v >= times * (even[kind] ?? 0)) return [kind, sure];
  }
  return ["other", ""];
}
