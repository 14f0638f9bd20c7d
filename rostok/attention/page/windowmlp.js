// The window MLP of model.py in plain JavaScript: the embeddings of the last few tokens, one hidden layer, the logits.
// It has no attention: no maps, no heads. Its run() and logits() are those of forward.js.

function erf(x) {
  // Abramowitz and Stegun 7.1.26: right to 1.5e-7
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const y =
    1 -
    ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return x < 0 ? -y : y;
}
const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));

export class WindowMlp {
  constructor(config, weights, products) {
    const { context: C, vocab_size: V, window: W, d_embed: N, d_hidden: M } = config;
    Object.assign(this, { config, weights, products, L: 0, H: 0, V, C, W, N, M, ids: [] });
    this.x = products.floats(C * W * N);
    this.hidden = products.floats(C * M);
    this.scores = products.floats(C * V);
  }
  static bytes({ context: C, vocab_size: V, window: W, d_embed: N, d_hidden: M }) {
    return 4 * C * (W * N + M + V) + 96;
  }
  run(ids) {
    let from = 0;
    while (from < ids.length - 1 && ids[from] === this.ids[from]) from++;
    this.ids = [...ids];
    const { W, N, M, V } = this,
      table = this.weights["embed.weight"];
    for (let t = from; t < ids.length; t++) {
      for (let w = 0; w < W; w++) {
        // the oldest first; slots before the text are the start sign
        const id = ids[t - W + 1 + w] ?? this.config.start_id;
        this.x.set(table.subarray(id * N, (id + 1) * N), (t * W + w) * N);
      }
    }
    const T = ids.length - from,
      { products } = this,
      hidden = this.hidden.subarray(from * M),
      scores = this.scores.subarray(from * V);
    products.multiply(hidden, this.x.subarray(from * W * N), this.weights["hidden.weight"], T, M, W * N);
    const bias = this.weights["hidden.bias"],
      last = this.weights["head.bias"];
    for (let i = 0; i < T * M; i++) hidden[i] = gelu(hidden[i] + bias[i % M]);
    products.multiply(scores, hidden, this.weights["head.weight"], T, V, M);
    for (let i = 0; i < T * V; i++) scores[i] += last[i % V];
    return from;
  }
  logits(t) {
    return this.scores.subarray(t * this.V, (t + 1) * this.V);
  }
}
