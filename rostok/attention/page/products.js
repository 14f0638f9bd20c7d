// The slow products of forward.js, in plain JavaScript and as WASM; both give the same numbers.
// Memory comes from the products too, since WASM sees nothing but its own: floats(n), bytes(n).

export class PlainProducts {
  name = "JavaScript";
  floats(n) {
    return new Float32Array(n);
  }
  bytes(n) {
    return new Uint8Array(n);
  }
  // out (T, N) = a (T, K) times w (N, K) transposed; four rows of each at once, so that every number is read less often
  multiply(out, a, w, T, N, K) {
    const t4 = T - (T % 4),
      n4 = N - (N % 4);
    for (let t = 0; t < t4; t += 4) for (let n = 0; n < n4; n += 4) block4(out, a, w, t, n, N, K);
    for (let t = 0; t < T; t++) {
      for (let n = t < t4 ? n4 : 0; n < N; n++) {
        let sum = 0;
        for (let k = 0, i = t * K, j = n * K; k < K; k++) sum += a[i++] * w[j++];
        out[t * N + n] = sum;
      }
    }
  }
  // One head: queries from..to-1; row t of the pattern (a lower triangle) and of the mixture z, rows `stride` apart.
  attend({ z, pattern, q, k, v, closed, from, to, E, stride, context }) {
    const scale = 1 / Math.sqrt(E);
    for (let t = from; t < to; t++) {
      const row = pattern.subarray((t * (t + 1)) / 2, ((t + 1) * (t + 2)) / 2);
      scoreRow(row, q, t * E, k, E, scale);
      softmaxRow(row, closed?.subarray(t * context, t * context + t + 1));
      mixRow(z, t * stride, row, v, E);
    }
  }
  sumExp(x, high) {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += Math.exp(x[i] - high);
    return sum;
  }
  swiglu(gate, up, n) {
    for (let i = 0; i < n; i++) gate[i] = (gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
  }
}
// The products of one query with the keys of a row, and the mixture of their values: four sums at once.
function scoreRow(row, q, at, k, E, scale) {
  const n = row.length;
  let s = 0;
  for (; s + 4 <= n; s += 4) {
    let a = 0,
      b = 0,
      c = 0,
      d = 0;
    for (let e = 0, j = s * E; e < E; e++, j++) {
      const x = q[at + e];
      a += x * k[j];
      b += x * k[j + E];
      c += x * k[j + 2 * E];
      d += x * k[j + 3 * E];
    }
    row[s] = a * scale;
    row[s + 1] = b * scale;
    row[s + 2] = c * scale;
    row[s + 3] = d * scale;
  }
  for (; s < n; s++) {
    let sum = 0;
    for (let e = 0, j = s * E; e < E; e++, j++) sum += q[at + e] * k[j];
    row[s] = sum * scale;
  }
}
function mixRow(out, at, row, v, E) {
  const n = row.length;
  let e = 0;
  for (; e + 4 <= E; e += 4) {
    let a = 0,
      b = 0,
      c = 0,
      d = 0;
    for (let s = 0, j = e; s < n; s++, j += E) {
      const w = row[s];
      a += w * v[j];
      b += w * v[j + 1];
      c += w * v[j + 2];
      d += w * v[j + 3];
    }
    out[at + e] = a;
    out[at + e + 1] = b;
    out[at + e + 2] = c;
    out[at + e + 3] = d;
  }
  for (; e < E; e++) {
    out[at + e] = 0;
    for (let s = 0; s < n; s++) out[at + e] += row[s] * v[s * E + e];
  }
}
function softmaxRow(row, closed) {
  let top = -Infinity,
    sum = 0;
  for (let s = 0; s < row.length; s++) if (row[s] > top && !closed?.[s]) top = row[s];
  for (let s = 0; s < row.length; s++) sum += row[s] = closed?.[s] ? 0 : Math.exp(row[s] - top);
  for (let s = 0; s < row.length; s++) row[s] = sum > 0 ? row[s] / sum : 0;
}
// prettier-ignore
function block4(out, a, w, t, n, N, K) {
  let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
  let s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
  for (let k = 0, i = t * K, j = n * K; k < K; k++, i++, j++) {
    const w0 = w[j], w1 = w[j + K], w2 = w[j + 2 * K], w3 = w[j + 3 * K];
    const a0 = a[i], a1 = a[i + K], a2 = a[i + 2 * K], a3 = a[i + 3 * K];
    s00 += a0 * w0; s01 += a0 * w1; s02 += a0 * w2; s03 += a0 * w3;
    s10 += a1 * w0; s11 += a1 * w1; s12 += a1 * w2; s13 += a1 * w3;
    s20 += a2 * w0; s21 += a2 * w1; s22 += a2 * w2; s23 += a2 * w3;
    s30 += a3 * w0; s31 += a3 * w1; s32 += a3 * w2; s33 += a3 * w3;
  }
  const p = t * N + n, q = p + N, r = q + N, s = r + N;
  out[p] = s00; out[p + 1] = s01; out[p + 2] = s02; out[p + 3] = s03;
  out[q] = s10; out[q + 1] = s11; out[q + 2] = s12; out[q + 3] = s13;
  out[r] = s20; out[r + 1] = s21; out[r + 2] = s22; out[r + 3] = s23;
  out[s] = s30; out[s + 1] = s31; out[s + 2] = s32; out[s + 3] = s33;
}

const PAGE = 65536,
  STACK = 16384 * 2; // the first pages are the C program's own
export class WasmProducts {
  name = "WASM";
  static async open(code) {
    // rejects where the browser or the page's policy refuses WASM
    const self = new WasmProducts();
    self.memory = new WebAssembly.Memory({ initial: 2, maximum: 65535 });
    self.used = PAGE + STACK;
    self.c = (await WebAssembly.instantiate(code, { env: { memory: self.memory } })).instance.exports;
    return self;
  }
  #take(size) {
    const at = (this.used + 15) & ~15,
      missing = at + size - this.memory.buffer.byteLength;
    this.used = at + size;
    if (missing > 0) throw new Error("reserve() before floats(): memory that grows moves");
    return at;
  }
  reserve(bytes) {
    // views break when memory grows, so all of it is reserved before the first view
    const missing = this.used + bytes - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE));
  }
  floats(n) {
    return new Float32Array(this.memory.buffer, this.#take(4 * (n + (-n & 3))), n);
  }
  bytes(n) {
    return new Uint8Array(this.memory.buffer, this.#take(n), n);
  }
  multiply(out, a, w, T, N, K) {
    this.c.multiply(out.byteOffset, a.byteOffset, w.byteOffset, T, N, K);
  }
  attend({ z, pattern, q, k, v, closed, from, to, E, stride, context }) {
    const [zAt, patternAt, qAt, kAt, vAt] = [z, pattern, q, k, v].map((x) => x.byteOffset);
    this.c.attend(zAt, patternAt, qAt, kAt, vAt, closed?.byteOffset ?? 0, from, to, E, stride, context);
  }
  sumExp(x, high) {
    return this.c.sum_exp(x.byteOffset, x.length, high);
  }
  swiglu(gate, up, n) {
    this.c.swiglu(gate.byteOffset, up.byteOffset, n);
  }
}
