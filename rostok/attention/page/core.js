// Pure arithmetic of the explorer: no page, no state. Node runs this file in tests/test_explorer.py.

export const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
export const sum = (xs) => xs.reduce((a, b) => a + b, 0);
export const dot = (a, b) => {
  let s = 0;
  for (let i = 0; i < a.length; i++) s += a[i] * b[i];
  return s;
};
export const length = (a) => Math.sqrt(dot(a, a));

// ---- softmax and its measures
export function softmax(scores) {
  const top = Math.max(...scores.filter(Number.isFinite));
  const e = Array.from(scores, (s) => (Number.isFinite(s) ? Math.exp(s - top) : 0));
  const total = sum(e);
  return e.map((x) => x / total); // every score closed: 0/0 = NaN, and the page says so
}
export const entropy = (ps) => -sum(Array.from(ps, (p) => (p > 0 ? p * Math.log(p) : 0)));

// ---- one head by hand: RMSNorm, RoPE, mixture
export function rmsNorm(x, gain, eps = 1e-6) {
  const r = Math.sqrt(dot(x, x) / x.length + eps);
  return Array.from(x, (v, i) => (v / r) * (gain ? gain[i] : 1));
}
export function rope(x, position, theta = 10000) {
  const half = x.length / 2,
    out = new Array(x.length);
  for (let i = 0; i < half; i++) {
    const angle = position * theta ** (-i / half),
      c = Math.cos(angle),
      s = Math.sin(angle);
    out[i] = x[i] * c - x[i + half] * s;
    out[i + half] = x[i + half] * c + x[i] * s;
  }
  return out;
}
export function mix(weights, values) {
  const out = new Array(values[0].length).fill(0);
  weights.forEach((w, j) => {
    for (let i = 0; i < out.length; i++) out[i] += w * values[j][i];
  });
  return out;
}
// The keys of all tokens, normed and turned: the same for every query.
export function headKeys({ k, kGain, theta, eps }) {
  const kNorm = k.map((row) => rmsNorm(row, kGain, eps));
  return { kNorm, kRope: kNorm.map((row, j) => rope(row, j, theta)) };
}
// All steps of one query: raw rows and headKeys in, every number of the step cards out.
export function headSteps({ q, v, qGain, t, theta, eps, keys }) {
  const qNorm = rmsNorm(q[t], qGain, eps),
    qRope = rope(qNorm, t, theta),
    d = q[t].length,
    [kNorm, kRope] = [keys.kNorm, keys.kRope].map((rows) => rows.slice(0, t + 1));
  const dots = Array.from({ length: t + 1 }, (_, j) => dot(qRope, kRope[j])),
    scaled = dots.map((x) => x / Math.sqrt(d));
  const top = Math.max(...scaled),
    exps = scaled.map((s) => Math.exp(s - top)),
    total = sum(exps);
  const weights = exps.map((e) => e / total);
  return {
    qRaw: q[t],
    qNorm,
    qRope,
    kNorm,
    kRope,
    dots,
    scaled,
    top,
    exps,
    total,
    weights,
    mixed: mix(weights, v.slice(0, t + 1)),
  };
}

// ---- reading a row of weights
// Every key is counted once, in the order: start, self, previous, other.
export function readout(row, isStart) {
  const out = { start: 0, previous: 0, self: 0, other: 0, future: 0, sum: 0 },
    t = row.length - 1;
  row.forEach((w, j) => {
    out[isStart[j] ? "start" : j === t ? "self" : j === t - 1 ? "previous" : "other"] += w;
    out.sum += w;
  });
  return out;
}

// Shrink a lower triangle to a size x size tile, keeping the largest: a one-pixel diagonal must survive.
export function maxPool(codes, T, size) {
  const n = Math.min(T, size),
    out = new codes.constructor(n * n);
  const first = Array.from({ length: n + 1 }, (_, c) => Math.ceil((c * T) / n)); // where the tokens of a cell begin
  for (let t = 0, y = 0; t < T; t++) {
    if (t >= first[y + 1]) y++;
    const at = (t * (t + 1)) / 2,
      base = y * n;
    for (let x = 0; x <= y; x++) {
      let top = out[base + x];
      for (let j = first[x], end = Math.min(first[x + 1], t + 1); j < end; j++)
        if (codes[at + j] > top) top = codes[at + j];
      out[base + x] = top;
    }
  }
  return { n, out };
}

// ---- the plane: four keys and a query
export const PLANE = {
  names: ["girl", "ball", "red", "ran"],
  q: [1.4, 0.7],
  keys: [
    [1.6, 0.9],
    [-1.2, 1.3],
    [-1.5, -0.6],
    [0.4, -1.6],
  ],
  values: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
    [0.5, 0.5, 0.5],
  ],
};
export function plane({ q, keys, values, sharp, norm }) {
  const unit = (x) => (norm ? rmsNorm(x) : x);
  const scores = keys.map((k) => sharp * dot(unit(q), unit(k)));
  const weights = softmax(scores);
  return { scores, weights, colour: mix(weights, values) };
}
// Keys in the half-plane behind the query, so that the scores are -3, -5, -6, -9 exactly.
export function nobodyFits(q = [2.6, 1.3], scores = [-3, -5, -6, -9], aside = [0.85, -0.75, 0.45, -0.3]) {
  const n2 = dot(q, q),
    side = [-q[1] / Math.sqrt(n2), q[0] / Math.sqrt(n2)];
  return {
    q,
    keys: scores.map((s, i) => [(s / n2) * q[0] + aside[i] * side[0], (s / n2) * q[1] + aside[i] * side[1]]),
  };
}

// ---- the mask and the bill
export function maskCheck(open) {
  // open[t][j]: true where query t may look at key j
  const wrong = { future: [], self: [], past: [] };
  open.forEach((row, t) =>
    row.forEach((yes, j) => {
      if (j > t && yes) wrong.future.push([t, j]);
      if (j === t && !yes) wrong.self.push([t, j]);
      if (j < t && !yes) wrong.past.push([t, j]);
    }),
  );
  return { ...wrong, right: !wrong.future.length && !wrong.self.length && !wrong.past.length };
}
export const maskRow = (scores, open) => softmax(scores.map((s, j) => (open[j] ? s : -Infinity)));
export const cost = (T, heads = 48) => ({
  all: T * T,
  kept: (T * (T + 1)) / 2,
  masked: (T * (T - 1)) / 2,
  total: T * T * heads,
});
export const windowWeights = (W) => W * 48 * 384; // first layer of the window network
export const ATTENTION_WEIGHTS = 4 * 384 * 384; // one attention layer, whatever the length

// ---- the spread of a dot product
export function random(seed) {
  // mulberry32: small, seeded, the same in every browser
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}
// Dot products of random vectors (mean 0, variance 1) for every size in `sizes`, by running sums: one query, `keys` keys.
export function dotSamples(sizes, keys, next) {
  const unit = () => (next() - 0.5) * Math.sqrt(12),
    sums = new Float64Array(keys),
    out = [];
  for (let i = 1, at = 0; i <= sizes[sizes.length - 1]; i++) {
    const q = unit();
    for (let k = 0; k < keys; k++) sums[k] += q * unit();
    if (i === sizes[at]) out[at++] = sums.slice();
  }
  return out;
}
export function spread(xs) {
  const mean = sum(xs) / xs.length;
  return Math.sqrt(sum(Array.from(xs, (x) => (x - mean) ** 2)) / xs.length);
}
export function histogram(xs, low, high, bins) {
  const out = new Array(bins).fill(0);
  for (const x of xs) out[clamp(Math.floor(((x - low) / (high - low)) * bins), 0, bins - 1)]++;
  return out;
}

// ---- text that is safe and plain to see
const NAMED = { "\n": "⏎", "\r": "␍", "\t": "⇥", " ": "␣" };
export function visible(piece) {
  // "\n" -> "⏎"; controls, marks of direction and lone spaces get a sign
  const text = piece.length > 1 && piece[0] === " " && piece[1] !== " " ? piece.slice(1) : piece;
  const shown = Array.from(text, (c, i) => {
    const code = c.codePointAt(0);
    if (c === " ") return i > 0 && i < text.length - 1 ? " " : NAMED[c];
    if (NAMED[c]) return NAMED[c];
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    if (code === 127) return "␡";
    if (
      (code >= 0x80 && code < 0xa0) ||
      (code >= 0x200b && code <= 0x200f) ||
      (code >= 0x2028 && code <= 0x202e) ||
      (code >= 0x2066 && code <= 0x2069) ||
      code === 0xfeff
    )
      return `⟨${code.toString(16).toUpperCase()}⟩`;
    return c;
  }).join("");
  return shown || "∅";
}
// Pieces that are parts of characters, told by the character: the bytes D0 and 9A of К as "К₁" and "К₂".
export function lettered(pieces, partial) {
  const out = [...pieces];
  for (let from = 0; from < pieces.length; from++) {
    if (!partial[from]) continue;
    let to = from;
    while (partial[to]) to++;
    readLetters(pieces.slice(from, to)).forEach((text, i) => (out[from + i] = text));
    from = to;
  }
  return out;
}
const bytesOf = (piece) =>
  Array.from(piece.matchAll(/⟨([0-9A-F]{2})⟩|./gsu), ([all, hex]) => (hex ? parseInt(hex, 16) : all.charCodeAt(0)));
const subscript = (n) => "₀₁₂₃₄₅₆₇₈₉"[n];
function readLetters(pieces) {
  // as they are where the bytes are not those of whole characters
  const lists = pieces.map(bytesOf);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(lists.flat()));
  } catch {
    return pieces;
  }
  const owners = [...text].flatMap((c, at) => {
    const n = new TextEncoder().encode(c).length;
    return Array.from({ length: n }, (_, i) => ({ c, at, n, part: subscript(i + 1) }));
  });
  let next = 0;
  return lists.map((list) => {
    const own = owners.slice(next, (next += list.length)),
      groups = [...new Set(own.map(({ at }) => at))].map((at) => own.filter((one) => one.at === at));
    return groups.map((one) => one[0].c + (one.length < one[0].n ? one.map(({ part }) => part).join("") : "")).join("");
  });
}
export const spaced = (piece) => piece.length > 1 && piece[0] === " " && piece[1] !== " ";
export const escapeXml = (s) =>
  String(s)
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

// ---- numbers in two languages
export function number(x, digits, lang) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x < 0 ? "−∞" : "∞";
  const fixed = Math.abs(x).toFixed(digits),
    [whole, part] = fixed.split(".");
  const grouped =
    whole.length > (lang === "ru" ? 4 : 3) ? whole.replace(/\B(?=(\d{3})+$)/g, lang === "ru" ? "\u00a0" : ",") : whole;
  const minus = x < 0 && Number(fixed) !== 0 ? "−" : "";
  return minus + grouped + (part ? (lang === "ru" ? "," : ".") + part : "");
}

// ---- the address keeps the state
export function parseHash(hash) {
  const out = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at < 1) continue;
    try {
      out[decodeURIComponent(part.slice(0, at))] = decodeURIComponent(part.slice(at + 1));
    } catch {
      /* not ours */
    }
  }
  return out;
}
export const formatHash = (state) =>
  "#" +
  Object.entries(state)
    .filter(([, v]) => v !== undefined && v !== null && v !== "")
    .map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`)
    .join("&");
export const whole = (text, low, high, otherwise) =>
  /^\d+$/.test(text ?? "") ? clamp(Number(text), low, high) : otherwise;

// ---- arcs: from the chosen token to a key, over one line or over several
export function arc(from, to) {
  // {x, y} are the middles of the tops of two tokens
  if (Math.abs(from.y - to.y) < 4) {
    const lift = clamp(Math.abs(from.x - to.x) * 0.32, 10, 30);
    if (Math.abs(from.x - to.x) < 1) return `M${from.x - 7} ${from.y}c-4 -20 18 -20 14 0`;
    return `M${from.x} ${from.y}C${from.x} ${from.y - lift} ${to.x} ${to.y - lift} ${to.x} ${to.y}`;
  }
  const bend = clamp((from.y - to.y) * 0.3, 12, 60);
  return `M${from.x} ${from.y}C${from.x} ${from.y - bend} ${to.x} ${to.y - bend - 6} ${to.x} ${to.y}`;
}
