// What flows into a token: its stream after the last layer, split layer by layer into what was there and what attention
// brought from which token, by the length of the vectors (rollout with norms; Abnar and Zuidema 2020, Kobayashi 2020).
// What an MLP adds is computed from its own token, so it stays there. Left out: directions, which may cancel.

const lengthAt = (x, at, n) => {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += x[at + i] ** 2;
  return Math.sqrt(sum);
};
// What every head would bring from every token with weight 1: W_O times its value, (T, H, D).
function brought(model, l, T) {
  const { C, D, E, H, G } = model,
    proj = model.weight(l, "attn.proj"),
    out = new Float32Array(T * H * D);
  for (let s = 0; s < T; s++) {
    for (let h = 0; h < H; h++) {
      const v = ((l * G + Math.floor(h / (H / G))) * C + s) * E,
        to = (s * H + h) * D;
      for (let i = 0; i < D; i++) {
        let sum = 0;
        for (let e = 0, at = i * D + h * E; e < E; e++) sum += proj[at + e] * model.v[v + e];
        out[to + i] = sum;
      }
    }
  }
  return out;
}
// The lengths of what query q takes from each key, all heads together.
function taken(model, l, q, values) {
  const { D, H } = model,
    one = new Float64Array(D),
    out = new Float64Array(q + 1);
  const heads = Array.from({ length: H }, (_, h) => h).filter((h) => !model.edit.heads.has(l * H + h)),
    rows = heads.map((h) => model.row(l, h, q));
  for (let s = 0; s <= q; s++) {
    one.fill(0);
    heads.forEach((h, n) => {
      const w = rows[n][s];
      for (let i = 0, at = (s * H + h) * D; i < D; i++) one[i] += w * values[at + i];
    });
    out[s] = lengthAt(one, 0, D);
  }
  return out;
}
// { edges: [[layer, from token, to token, share]], sources: share by token of the embedding }; shares of 1, below `least`
// dropped. It pauses after each layer, for it may take long.
export function* rolling(model, t, least) {
  const edges = [],
    { C, D, L } = model;
  let share = new Float64Array(t + 1);
  share[t] = 1;
  for (let l = L - 1; l >= 0; l--) {
    const values = brought(model, l, t + 1),
      below = new Float64Array(t + 1);
    for (let q = 0; q <= t; q++) {
      if (share[q] < least) continue;
      const parts = taken(model, l, q, values);
      parts[q] += lengthAt(model.stream, (l * C + q) * D, D); // what was there
      const total = parts.reduce((a, b) => a + b, 0);
      parts.forEach((part, s) => {
        const flow = (share[q] * part) / total;
        below[s] += flow;
        if (flow >= least) edges.push([l, s, q, flow]);
      });
    }
    share = below;
    yield;
  }
  return { edges, sources: Array.from(share) };
}
