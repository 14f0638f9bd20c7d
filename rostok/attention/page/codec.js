// Reads the weights that rostok/attention/codec.py wrote. Pure: bytes in, numbers out.

export async function unpack(text) { // base64 -> gzip -> bytes
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
export function fromPlanes(bytes, width) { // byte planes, lowest first -> whole numbers
  const n = bytes.length / width, out = new Uint32Array(n);
  for (let p = 0; p < width; p++) for (let i = 0; i < n; i++) out[i] |= bytes[p * n + i] << (8 * p);
  return out;
}
export function half(bits) { // the 16 bits of a float16 -> a number
  const sign = bits & 0x8000 ? -1 : 1, e = (bits >> 10) & 31, f = bits & 1023;
  if (e === 31) return f ? NaN : sign * Infinity;
  return sign * (e ? 2 ** (e - 15) * (1 + f / 1024) : 2 ** -14 * (f / 1024));
}

export class Weights {
  constructor(block, codes, index, value) {
    [this.L, this.H, this.T] = block.weights.shape;
    this.codes = codes;
    this.power = block.weights.coding === "sqrt-u8" ? 2 : 1;
    this.k = block.exact.k;
    this.index = index;
    this.value = Float64Array.from(value, (v) => v / 16777215);
    this.tiles = this.#pictures();
  }
  static async read(block) {
    const [codes, index, value] = await Promise.all(
      [block.weights.base64, block.exact.index, block.exact.value].map(unpack));
    return new Weights(block, codes, fromPlanes(index, 2), fromPlanes(value, 3));
  }
  offset(l, h) { return ((l * this.H + h) * this.T * (this.T + 1)) / 2; }
  row(l, h, t) { // the t + 1 weights of query t: the exact ones, and the others scaled so that the sum is 1
    const out = new Float64Array(t + 1), exact = new Uint8Array(t + 1);
    const first = ((l * this.H + h) * this.T + t) * this.k, at = this.offset(l, h) + (t * (t + 1)) / 2;
    let known = 0, total = 0;
    for (let i = 0; i < this.k; i++) {
      const j = this.index[first + i];
      if (j > t) continue; // padding of a row shorter than k
      out[j] = this.value[first + i];
      exact[j] = 1;
      known += out[j];
    }
    for (let j = 0; j <= t; j++) if (!exact[j]) total += out[j] = (this.codes[at + j] / 255) ** this.power;
    const missing = Math.max(0, 1 - known), others = t + 1 - sum8(exact);
    for (let j = 0; j <= t; j++) if (!exact[j]) out[j] = total > 0 ? (out[j] / total) * missing : missing / others;
    return out;
  }
  // One byte a weight, rint(255 sqrt(a)), the exact ones filled in: what maps and thumbnails are painted from.
  #pictures() {
    const { L, H, T, k } = this, out = new Uint8Array(this.codes);
    for (let head = 0, base = 0; head < L * H; head++, base += (T * (T + 1)) / 2) {
      for (let t = 0; t < T; t++) {
        const at = base + (t * (t + 1)) / 2, first = (head * T + t) * k;
        if (this.power === 1) { // parts of what the exact ones leave
          let missing = 1;
          for (let i = first; i < first + k; i++) missing -= this.value[i];
          for (let j = 0; j <= t; j++) out[at + j] = Math.round(Math.sqrt((out[at + j] / 255) * Math.max(0, missing)) * 255);
        }
        for (let i = first; i < first + k; i++) {
          if (this.index[i] <= t) out[at + this.index[i]] = Math.round(255 * Math.sqrt(this.value[i]));
        }
      }
    }
    return out;
  }
}
const sum8 = (bytes) => { let s = 0; for (const b of bytes) s += b; return s; };

// q, k, v of the heads that the page carries: [{layer, head, q, k, v, ...}], rows of d_head numbers.
export async function readSteps(block, T, E) {
  if (!block) return [];
  const bytes = await unpack(block.base64), view = new DataView(bytes.buffer);
  let at = 0;
  const matrix = () => Array.from({ length: T }, () =>
    Float64Array.from({ length: E }, () => half(view.getUint16(2 * at++, true))));
  return block.heads.map((head) => ({ ...head, q: matrix(), k: matrix(), v: matrix() }));
}
