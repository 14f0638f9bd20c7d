// Byte-level BPE as tiktoken does it: cut the text by a pattern, then join the pair of neighbours whose join has the lowest
// id, until no pair has one. Pieces travel as strings with one character a byte; the index is the id.

export class Bpe {
  constructor({ pieces, pattern, start }) {
    this.pieces = pieces;
    this.pattern = new RegExp(pattern, "gu");
    this.start = start;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]).filter(([, id]) => id !== start));
    this.known = new Map(); // words seen before
    this.read = new Map(); // pieces shown before
  }
  encode(text) {
    const out = [],
      utf8 = new TextEncoder();
    for (const [word] of text.matchAll(this.pattern)) {
      let bytes = "";
      for (const byte of utf8.encode(word)) bytes += String.fromCharCode(byte);
      for (const id of this.#word(bytes)) out.push(id);
    }
    return out;
  }
  #word(bytes) {
    const whole = this.ids.get(bytes),
      found = whole !== undefined ? [whole] : this.known.get(bytes);
    if (found) return found;
    const parts = [...bytes];
    for (let at = this.#best(parts); at >= 0; at = this.#best(parts)) parts.splice(at, 2, parts[at] + parts[at + 1]);
    const out = parts.map((part) => this.ids.get(part));
    if (this.known.size > 20000) this.known.clear();
    this.known.set(bytes, out);
    return out;
  }
  #best(parts) {
    // where the pair of neighbours begins whose join has the lowest id; -1: none
    let best = Infinity,
      at = -1;
    for (let i = 0; i + 1 < parts.length; i++) {
      const id = this.ids.get(parts[i] + parts[i + 1]);
      if (id < best) [best, at] = [id, i];
    }
    return at;
  }
  bytes(id) {
    return Uint8Array.from(this.pieces[id], (c) => c.charCodeAt(0));
  }
  decode(ids) {
    const text = ids.map((id) => this.pieces[id]).join("");
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(text, (c) => c.charCodeAt(0)));
  }
  piece(id) {
    if (!this.read.has(id)) this.read.set(id, this.#read(id));
    return this.read.get(id);
  }
  #read(id) {
    // [text, false], or [⟨D0⟩, true] where the bytes are a part of a character
    if (id === this.start) return ["◆", false];
    const bytes = this.bytes(id);
    try {
      return [new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), false];
    } catch {
      return [
        Array.from(bytes, (b) => (b > 127 ? `⟨${b.toString(16).toUpperCase()}⟩` : String.fromCharCode(b))).join(""),
        true,
      ];
    }
  }
}
