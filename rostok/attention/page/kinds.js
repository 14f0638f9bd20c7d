// Where a kind of head looks: shared by the scores, which the worker computes, and the label in the viewer.

// For each kind the keys that count for query t (none where the kind has none there).
export function keysOf(ids, start, t) {
  const out = { induction: [], previous: [t - 1], same: [], start: [], self: [t] };
  for (let j = 0; j < t; j++) {
    if (ids[j] === start) out.start.push(j);
    else if (ids[j] === ids[t]) {
      out.same.push(j);
      if (j + 1 < t) out.induction.push(j + 1);
    }
  }
  if (ids[t] === start) out.start.push(t);
  return out;
}
