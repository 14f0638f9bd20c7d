// Reads the weights that rostok/attention/page/codec.py wrote. Pure: bytes in, numbers out.

import { maxPool } from "./core.js";

export async function unpack(text) {
  // base64 -> gzip -> bytes
  const letters = atob(text),
    packed = new Uint8Array(letters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
export function half(bits) {
  // the 16 bits of a float16 -> a number
  const sign = bits & 0x8000 ? -1 : 1,
    e = (bits >> 10) & 31,
    f = bits & 1023;
  if (e === 31) return f ? NaN : sign * Infinity;
  return sign * (e ? 2 ** (e - 15) * (1 + f / 1024) : 2 ** -14 * (f / 1024));
}

const EXACT = 255; // the byte of a weight that stands in the exact block
export class Weights {
  constructor(block, codes, planes) {
    [this.L, this.H, this.T] = block.weights.shape;
    this.codes = codes;
    this.scale = block.weights.scale;
    this.power = block.weights.coding === "sqrt-u8" ? 2 : 1;
    const n = planes.length / 3;
    this.exact = new Float64Array(n);
    for (let i = 0; i < n; i++)
      this.exact[i] = (planes[i] + 256 * planes[n + i] + 65536 * planes[2 * n + i]) / 16777215;
    this.tiles = this.#pictures();
  }
  static async read(block) {
    return new Weights(block, ...(await Promise.all([block.weights.base64, block.exact.base64].map(unpack))));
  }
  pool(l, h) {
    this.pools ??= new Map();
    const key = l * this.H + h;
    if (!this.pools.has(key)) this.pools.set(key, maxPool(this.tile(l, h), this.T, SMALL));
    return this.pools.get(key);
  }
  tile(l, h) {
    // the bytes of one head, a lower triangle
    const at = this.offset(l, h);
    return this.tiles.subarray(at, at + (this.T * (this.T + 1)) / 2);
  }
  offset(l, h) {
    return ((l * this.H + h) * this.T * (this.T + 1)) / 2;
  }
  // The t + 1 weights of query t: the exact ones, and the others scaled so that the sum is 1.
  row(l, h, t) {
    const out = new Float64Array(t + 1),
      line = (l * this.H + h) * this.T + t,
      at = this.offset(l, h) + (t * (t + 1)) / 2;
    let next = this.first[line],
      known = 0,
      total = 0,
      others = 0;
    for (let j = 0; j <= t; j++) {
      const code = this.codes[at + j];
      if (code === EXACT) known += out[j] = this.exact[next++];
      else {
        total += out[j] = code ** this.power;
        others++;
      }
    }
    const missing = Math.max(0, 1 - known);
    for (let j = 0; j <= t; j++)
      if (this.codes[at + j] !== EXACT) out[j] = total > 0 ? (out[j] / total) * missing : missing / others;
    return out;
  }
  // The exact ones of a row, largest first: [[key, weight], ...]. Lists and arcs show these and no others.
  top(l, h, t, k = 8) {
    const row = this.row(l, h, t),
      at = this.offset(l, h) + (t * (t + 1)) / 2;
    return Array.from(row, (w, j) => [j, w])
      .filter(([j]) => this.codes[at + j] === EXACT)
      .sort((a, b) => b[1] - a[1] || b[0] - a[0])
      .slice(0, k);
  }
  // One byte a weight, rint(255 sqrt(a)), the exact ones filled in: what maps and thumbnails are painted from.
  #pictures() {
    const { L, H, T, codes } = this,
      out = new Uint8Array(codes);
    this.first = new Uint32Array(L * H * T); // where a row's exact values begin
    let at = 0,
      next = 0;
    for (let line = 0; line < L * H * T; line++) {
      const size = (line % T) + 1;
      let missing = 1;
      this.first[line] = next;
      for (let j = at; j < at + size; j++) {
        if (codes[j] === EXACT) {
          missing -= this.exact[next];
          out[j] = Math.round(255 * Math.sqrt(this.exact[next++]));
        }
      }
      for (let j = at; j < at + size; j++) {
        const c = codes[j] / this.scale;
        if (codes[j] !== EXACT) out[j] = Math.round(255 * (this.power === 2 ? c : Math.sqrt(c * Math.max(0, missing))));
      }
      at += size;
    }
    return out;
  }
}

// The same of weights that were computed in the page: nothing is coded, every number is the run's own. The worker sends
// the small pictures along, so that the page's thread has only to paint.
export const SMALL = 64; // side of a thumbnail, in cells
export class Maps {
  constructor({ numbers, pools }, L, H, T) {
    Object.assign(this, { numbers, pools, L, H, T, size: (T * (T + 1)) / 2 });
  }
  pool(l, h) {
    const n = Math.min(this.T, SMALL),
      at = (l * this.H + h) * n * n;
    return { n, out: this.pools.subarray(at, at + n * n) };
  }
  tile(l, h) {
    const at = this.offset(l, h),
      out = new Uint8Array(this.size);
    for (let i = 0; i < out.length; i++) out[i] = 255 * Math.sqrt(this.numbers[at + i]) + 0.5;
    return out;
  }
  offset(l, h) {
    return (l * this.H + h) * this.size;
  }
  row(l, h, t) {
    const at = this.offset(l, h) + (t * (t + 1)) / 2;
    return this.L ? Float64Array.from(this.numbers.subarray(at, at + t + 1)) : new Float64Array(t + 1);
  }
  top(l, h, t, k = 8) {
    const list = Array.from(this.L ? this.row(l, h, t) : [], (w, j) => [j, w]);
    return list.sort((a, b) => b[1] - a[1] || b[0] - a[0]).slice(0, k);
  }
}

// q, k, v of the heads that the page carries: [{layer, head, q, k, v, ...}], rows of d_head numbers.
export async function readSteps(block, T, E) {
  if (!block) return [];
  const bytes = await unpack(block.base64),
    view = new DataView(bytes.buffer);
  let at = 0;
  const matrix = () =>
    Array.from({ length: T }, () => Float64Array.from({ length: E }, () => half(view.getUint16(2 * at++, true))));
  return block.heads.map((head) => ({ ...head, q: matrix(), k: matrix(), v: matrix() }));
}
