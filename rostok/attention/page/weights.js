// The weights that live.py packed: a header [[name, coding, shape], ...] and bytes -> name -> numbers, in memory of `floats`.
// bf16: two planes, the upper bytes of all numbers, then the lower; f32 the same with four; i8: numbers of one byte, and a
// scale (bf16, two planes) for every 32 of a row.

const GROUP = 32;
export function readWeights(header, bytes, floats) {
  const out = {};
  let at = 0;
  for (const [name, coding, shape] of header) {
    const n = shape.reduce((a, b) => a * b, 1),
      to = floats(n);
    if (coding === "i8") {
      const groups = n / GROUP,
        scales = new Float32Array(groups);
      planes(scales, bytes, at, 2);
      scaled(to, scales, new Int8Array(bytes.buffer, bytes.byteOffset + at + 2 * groups, n));
      at += 2 * groups + n;
    } else {
      const width = coding === "bf16" ? 2 : 4;
      planes(to, bytes, at, width);
      at += width * n;
    }
    out[name] = to;
  }
  return out;
}
function planes(to, bytes, at, width) {
  const n = to.length,
    bits = new Uint32Array(to.buffer, to.byteOffset, n);
  for (let i = 0; i < n; i++) {
    let x = (bytes[at + i] << 24) | (bytes[at + n + i] << 16);
    if (width === 4) x |= (bytes[at + 2 * n + i] << 8) | bytes[at + 3 * n + i];
    bits[i] = x;
  }
}
function scaled(to, scales, codes) {
  for (let i = 0; i < codes.length; i++) to[i] = codes[i] * scales[(i / GROUP) | 0];
}
