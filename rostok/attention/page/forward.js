// A GPT in plain JavaScript, step for step rostok/attention/reference.py: ids in, logits and every step in between out.
//
//     const model = new Gpt(config, weights, products)   // weights: name -> Float32Array; products: see products.js
//     model.run(ids)                                     // only what has changed since the last call is computed
//     model.run(ids, { heads: new Set([l * H + h]), mlps: new Set([l]), closed: [[t, s]] })      // switched off, closed
//     model.logits(t), model.row(l, h, t), model.lens(l, t), model.parts(t)
//
// Letters as there: T time, D d_model, H heads, G key-value heads, E d_head, M d_mlp, V vocabulary, C context. All steps
// of all layers stay in memory, since the page shows them; token t of a step is the slice t * width .. (t + 1) * width.
// Left out: training, batches, dropout, more than one text at once.

const NONE = { heads: new Set(), mlps: new Set(), closed: [] };
const sameEdit = (a, b) =>
  [...a.heads].join() === [...b.heads].join() &&
  [...a.mlps].join() === [...b.mlps].join() &&
  a.closed.join() === b.closed.join();

export class Gpt {
  constructor(config, weights, products) {
    const { n_layer: L, n_head: H, n_kv_head, d_model: D, vocab_size: V, context: C } = config;
    const G = n_kv_head || H,
      E = D / H,
      M = weights["blocks.0.mlp.gate.weight"].length / D;
    Object.assign(this, {
      config,
      weights,
      products,
      L,
      H,
      G,
      E,
      D,
      M,
      V,
      C,
      triangle: (C * (C + 1)) / 2,
      width: (H + 2 * G) * E,
    });
    for (const [name, size] of Object.entries(Gpt.sizes(config, M))) this[name] = products.floats(size);
    this.layers = Array.from({ length: L }, () => ({})); // blocks.3.attn.qkv.weight -> layers[3]["attn.qkv"]
    for (const [name, weight] of Object.entries(weights)) {
      const [, layer, own] = /^blocks\.(\d+)\.(.*)\.weight$/.exec(name) ?? [];
      if (own) this.layers[layer][own] = weight;
    }
    this.shut = products.bytes(C * C);
    const angle = (t, i) => t * config.rope_theta ** (-i / (E / 2));
    for (let t = 0; t < C; t++) {
      for (let i = 0; i < E / 2; i++) {
        this.cos[(t * E) / 2 + i] = Math.cos(angle(t, i));
        this.sin[(t * E) / 2 + i] = Math.sin(angle(t, i));
      }
    }
    this.ids = [];
    this.edit = NONE;
  }
  static sizes({ n_layer: L, n_head: H, n_kv_head, d_model: D, vocab_size: V, context: C }, M) {
    const G = n_kv_head || H,
      E = D / H;
    return {
      cos: (C * E) / 2,
      sin: (C * E) / 2,
      stream: (L + 1) * C * D,
      mid: L * C * D, // before each layer and after the last; between attention and MLP
      raw: L * C * (H + 2 * G) * E, // q, k and v as projected
      q: H * C * E,
      k: L * G * C * E,
      v: L * G * C * E, // after QK-norm and RoPE: (heads, C, E)
      pattern: (L * H * C * (C + 1)) / 2,
      z: L * C * D,
      normed: C * D,
      out: C * D,
      gate: C * M,
      up: C * M,
      scores: C * V,
      one: D,
      guess: V,
    };
  }
  static bytes(config, M) {
    // what new Gpt takes from the products
    const { context: C } = config;
    return Object.values(Gpt.sizes(config, M)).reduce((a, n) => a + 4 * n + 32, C * C + 32);
  }
  weight(layer, name) {
    return this.layers[layer][name];
  }

  // Compute the rows that differ from the last call. Gives the first of them.
  run(ids, edit = NONE) {
    let from = 0;
    if (sameEdit(edit, this.edit)) while (from < ids.length - 1 && ids[from] === this.ids[from]) from++;
    this.ids = [...ids];
    this.edit = edit;
    this.#shut(edit.closed);
    const { D } = this,
      table = this.weights["embed.weight"];
    for (let t = from; t < ids.length; t++) this.stream.set(table.subarray(ids[t] * D, (ids[t] + 1) * D), t * D);
    for (let layer = 0; layer < this.L; layer++) this.block(layer, from, ids.length);
    this.head(from, ids.length);
    return from;
  }
  // The same with an edit that begins in `layer`: what comes before is taken from a clean run of the same ids.
  runFrom(clean, layer, edit) {
    const { C, D } = this,
      T = clean.ids.length,
      at = layer * C * D;
    this.edit = edit;
    this.ids = [...clean.ids];
    this.#shut(edit.closed);
    this.stream.set(clean.stream.subarray(at, at + T * D), at);
    for (let l = layer; l < this.L; l++) this.block(l, 0, T);
  }
  #shut(closed) {
    this.shut.fill(0);
    for (const [t, s] of closed) if (t < this.C && s <= t) this.shut[t * this.C + s] = 1;
  }

  block(layer, from, T) {
    const { C, D } = this,
      at = layer * C * D;
    const x = this.stream.subarray(at, at + C * D),
      mid = this.mid.subarray(at, at + C * D);
    const after = this.stream.subarray(at + C * D, at + 2 * C * D);
    this.attention(layer, x, from, T); // into out
    this.#add(mid, x, this.out, from, T);
    if (this.edit.mlps.has(layer)) this.out.fill(0, from * D, T * D);
    else this.mlp(layer, mid, from, T);
    this.#add(after, mid, this.out, from, T);
  }
  #add(to, a, b, from, T) {
    for (let i = from * this.D; i < T * this.D; i++) to[i] = a[i] + b[i];
  }
  #multiply(out, a, name, N, K, from, T) {
    // rows from..T-1 only
    this.products.multiply(out.subarray(from * N), a.subarray(from * K), name, T - from, N, K);
  }
  norm(to, toAt, x, at, gain, n) {
    // x / sqrt(mean(x^2) + eps) * gain
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[at + i] * x[at + i];
    const scale = 1 / Math.sqrt(sum / n + this.config.norm_eps);
    for (let i = 0; i < n; i++) to[toAt + i] = x[at + i] * scale * gain[i];
  }
  rope(x, at, t) {
    // turn each pair (i, i + E/2) by its angle
    const half = this.E / 2;
    for (let i = 0; i < half; i++) {
      const c = this.cos[t * half + i],
        s = this.sin[t * half + i],
        a = x[at + i],
        b = x[at + i + half];
      x[at + i] = a * c - b * s;
      x[at + i + half] = b * c + a * s;
    }
  }
  attention(layer, x, from, T) {
    const { C, D, E, H, G, width, products } = this,
      raw = this.raw.subarray(layer * C * width, (layer + 1) * C * width);
    for (let t = from; t < T; t++) this.norm(this.normed, t * D, x, t * D, this.weight(layer, "attn_norm"), D);
    this.#multiply(raw, this.normed, this.weight(layer, "attn.qkv"), width, D, from, T);
    for (let t = from; t < T; t++) this.#split(layer, raw, t);
    const z = this.z.subarray(layer * C * D),
      closed = this.edit.closed.length ? this.shut : null;
    for (let h = 0; h < H; h++) {
      const g = layer * G + Math.floor(h / (H / G));
      products.attend({
        z: z.subarray(h * E),
        pattern: this.pattern.subarray((layer * H + h) * this.triangle),
        q: this.q.subarray(h * C * E),
        k: this.k.subarray(g * C * E),
        v: this.v.subarray(g * C * E),
        closed,
        from,
        to: T,
        E,
        stride: D,
        context: C,
      });
      if (this.edit.heads.has(layer * H + h))
        for (let t = from; t < T; t++) z.fill(0, t * D + h * E, t * D + (h + 1) * E);
    }
    this.#multiply(this.out, z, this.weight(layer, "attn.proj"), D, D, from, T);
  }
  #split(layer, raw, t) {
    // one row of q, k, v into heads, normed and turned
    const { C, E, H, G, width } = this,
      at = t * width;
    for (let h = 0; h < H; h++) {
      this.norm(this.q, (h * C + t) * E, raw, at + h * E, this.weight(layer, "attn.q_norm"), E);
      this.rope(this.q, (h * C + t) * E, t);
    }
    for (let g = 0; g < G; g++) {
      const to = ((layer * G + g) * C + t) * E,
        value = at + (H + G + g) * E;
      this.norm(this.k, to, raw, at + (H + g) * E, this.weight(layer, "attn.k_norm"), E);
      this.rope(this.k, to, t);
      this.v.set(raw.subarray(value, value + E), to);
    }
  }
  mlp(layer, mid, from, T) {
    const { D, M } = this,
      gate = this.gate,
      up = this.up;
    for (let t = from; t < T; t++) this.norm(this.normed, t * D, mid, t * D, this.weight(layer, "mlp_norm"), D);
    this.#multiply(gate, this.normed, this.weight(layer, "mlp.gate"), M, D, from, T);
    this.#multiply(up, this.normed, this.weight(layer, "mlp.up"), M, D, from, T);
    this.products.swiglu(gate.subarray(from * M), up.subarray(from * M), (T - from) * M);
    this.#multiply(this.out, gate, this.weight(layer, "mlp.down"), D, M, from, T);
  }
  head(from, T, stream = this.stream.subarray(this.L * this.C * this.D)) {
    // the final norm, then a logit for each token
    const { D } = this,
      table = this.weights["head.weight"] ?? this.weights["embed.weight"];
    for (let t = from; t < T; t++) this.norm(this.normed, t * D, stream, t * D, this.weights["final_norm.weight"], D);
    this.#multiply(this.scores, this.normed, table, this.V, D, from, T);
  }

  // ---- what the page shows of a run
  logits(t) {
    return this.scores.subarray(t * this.V, (t + 1) * this.V);
  }
  row(l, h, t) {
    // the weights of one query
    const at = (l * this.H + h) * this.triangle + (t * (t + 1)) / 2;
    return this.pattern.subarray(at, at + t + 1);
  }
  // The logits that the stream would give after `layer` layers (0: the embedding alone), with the final norm: the logit lens.
  lens(layer, t) {
    const { D, V, C, one, guess } = this,
      at = (layer * C + t) * D;
    this.norm(one, 0, this.stream, at, this.weights["final_norm.weight"], D);
    this.products.multiply(guess, one, this.weights["head.weight"] ?? this.weights["embed.weight"], 1, V, D);
    return guess; // until the next call
  }
  // What is written into the stream of token t: [{ part, layer, head, vector }], embedding, heads and MLPs; they sum to it.
  parts(t) {
    const { L, H, C, D, E } = this,
      out = [{ part: "embed", vector: this.stream.slice(t * D, (t + 1) * D) }];
    for (let l = 0; l < L; l++) {
      for (let h = 0; h < H; h++) out.push({ part: "head", layer: l, head: h, vector: this.result(l, h, t) });
      const at = (l * C + t) * D,
        after = at + C * D;
      out.push({
        part: "mlp",
        layer: l,
        vector: Float32Array.from({ length: D }, (_, i) => this.stream[after + i] - this.mid[at + i]),
      });
    }
    return out;
  }
  result(l, h, t) {
    // what one head adds to the stream: its slice of W_O times its mixture z
    const { C, D, E } = this,
      proj = this.weight(l, "attn.proj"),
      z = (l * C + t) * D + h * E,
      out = new Float32Array(D);
    for (let i = 0; i < D; i++) for (let e = 0; e < E; e++) out[i] += proj[i * D + h * E + e] * this.z[z + e];
    return out;
  }
  // How much each part adds to the logit of `id` less that of `rival`, at the scale of the final norm; with the exact sum.
  contributions(t, id, rival) {
    const { D, L, C } = this,
      table = this.weights["head.weight"] ?? this.weights["embed.weight"];
    const gain = this.weights["final_norm.weight"],
      at = (L * C + t) * D;
    let square = 0;
    for (let i = 0; i < D; i++) square += this.stream[at + i] ** 2;
    const scale = 1 / Math.sqrt(square / D + this.config.norm_eps);
    const along = (vector, token) => vector.reduce((a, x, i) => a + x * gain[i] * scale * table[token * D + i], 0);
    const parts = this.parts(t).map(({ vector, ...rest }) => ({
      ...rest,
      own: along(vector, id),
      rival: along(vector, rival),
    }));
    const scores = this.logits(t);
    return { parts, own: scores[id], rival: scores[rival] };
  }
}
