// The live model: it runs in a worker, so that the page never waits. The page asks, this file answers:
//
//     open      the packed runs, the tokenizer, the WASM of the products -> { products, contexts }
//     document  a text and what is switched off, for one run -> a document as explorer.py makes it, its maps as numbers
//     steps     q, k and v of one head                     parts    the way of a guess: lens by layer, part by part
//     flow      what flows into a token, layer by layer
//     matter    what each head's absence does to a guess   write    the next tokens, one message each
//
// A question has a number; its answer carries the same. `stop` ends what is asked for many times over (matter, write).
import { Bpe } from "./tokenizer.js";
import { Gpt } from "./forward.js";
import { WindowMlp } from "./windowmlp.js";
import { PlainProducts, WasmProducts } from "./products.js";
import { readWeights } from "./weights.js";
import { Guesses, HeadScores, guessesOf, lossesOf } from "./measure.js";
import { rolling } from "./rollout.js";
import { draw, drawer, filtered, likeliest } from "./sampling.js";
import { SMALL, unpack } from "./codec.js";
import { maxPool } from "./core.js";

const EMPTY = { heads: new Set(), mlps: new Set(), closed: [] };
export class LiveRun {
  // one run: its model clean, edited, and a third for trying every head
  constructor(config, weights, products, tokenizer, kept) {
    Object.assign(this, { config, weights, products, tokenizer });
    this.make = () => new (config.kind === "gpt" ? Gpt : WindowMlp)(config, weights, products);
    this.clean = { model: kept ?? this.make(), guesses: new Guesses(), scores: new HeadScores() };
    this.edited = null;
    this.trial = null;
  }
  encode(text) {
    // { ids, dropped }: what fits the context, the start sign in front
    const all = [this.tokenizer.start, ...this.tokenizer.encode(text)];
    return { ids: all.slice(0, this.config.context), dropped: Math.max(0, all.length - this.config.context) };
  }
  #compute(side, ids, edit) {
    const { model, guesses, scores } = side,
      from = model.run(ids, edit);
    side.from = Math.min(side.from ?? 0, from); // the first row whose head scores are old
    guesses.update(ids, (t) => model.logits(t), from, this.products);
    return side;
  }
  read(ids, edit) {
    // the side that the page shows, computed
    const clean = this.#compute(this.clean, ids, EMPTY);
    this.now = clean.model;
    if (!edit || !this.changes(edit)) return clean;
    this.edited ??= { model: this.make(), guesses: new Guesses(), scores: new HeadScores() };
    this.now = this.edited.model;
    return this.#compute(this.edited, ids, edit);
  }
  changes(edit) {
    return this.config.kind === "gpt" && (edit.heads.size > 0 || edit.mlps.size > 0 || edit.closed.length > 0);
  }
  document(text, edit) {
    const { ids, dropped } = this.encode(text),
      { model, guesses } = this.read(ids, edit),
      { tokenizer } = this;
    const pieces = ids.map((id) => tokenizer.piece(id)),
      losses = lossesOf(ids, guesses, (id) => tokenizer.piece(id)[0]);
    const before =
      model === this.clean.model ? null : lossesOf(ids, this.clean.guesses, (id) => tokenizer.piece(id)[0]);
    return {
      text: {
        ids,
        pieces: pieces.map(([p]) => p),
        partial: pieces.map(([, part]) => part),
        T: ids.length,
        start: ids.map((id) => id === tokenizer.start),
        dropped,
      },
      losses,
      before,
      maps: this.maps(model, ids.length),
    };
  }
  heads() {
    // kinds and scores of the heads on what was read last; the page shows the maps before it asks
    const side = this.now === this.clean.model ? this.clean : this.edited,
      { model, scores } = side;
    const row = (head, t) => model.row(Math.floor(head / model.H), head % model.H, t);
    scores.update(model.ids, this.tokenizer.start, model.L * model.H, row, Math.min(side.from, model.ids.length));
    side.from = Infinity;
    return { heads: scores.records(model.H), even: scores.evenScores() };
  }
  // All weights, one triangle a head; and small pictures of bytes, rint(255 sqrt(a)).
  maps(model, T) {
    const size = (T * (T + 1)) / 2,
      heads = model.L * model.H,
      numbers = new Float32Array(heads * size),
      n = Math.min(T, SMALL);
    for (let h = 0; h < heads; h++)
      numbers.set(model.pattern.subarray(h * model.triangle, h * model.triangle + size), h * size);
    const pools = new Uint8Array(heads * n * n);
    for (let h = 0; h < heads; h++) {
      const { out } = maxPool(numbers.subarray(h * size, (h + 1) * size), T, SMALL);
      for (let i = 0; i < out.length; i++) pools[h * n * n + i] = 255 * Math.sqrt(out[i]) + 0.5;
    }
    return { numbers, pools };
  }
  shown() {
    // the model that the page looks at: clean, or with its changes
    return this.now;
  }
  steps(l, h) {
    // q, k and v before the norm, and what W_O makes of them, as readSteps() gives them
    const model = this.shown(),
      { C, E, H, G, D, width } = model,
      T = model.ids.length,
      g = Math.floor(h / (H / G));
    const raw = (t, at) =>
      Float64Array.from(model.raw.subarray((l * C + t) * width + at * E, (l * C + t) * width + (at + 1) * E));
    const rows = (f) => Array.from({ length: T }, (_, t) => f(t)),
      size = (x) => Math.sqrt(x.reduce((a, b) => a + b * b, 0));
    const v = rows((t) => raw(t, H + G + g)),
      results = rows((t) => model.result(l, h, t));
    return {
      layer: l,
      head: h,
      q: rows((t) => raw(t, h)),
      k: rows((t) => raw(t, H + g)),
      v,
      q_gain: Array.from(model.weight(l, "attn.q_norm")),
      k_gain: Array.from(model.weight(l, "attn.k_norm")),
      vo_norm: v.map((x) => size(this.#through(model, l, h, x, D, E))),
      result_norm: results.map(size),
      result_start: results.map((x) => Array.from(x.subarray(0, 6))),
    };
  }
  #through(model, l, h, v, D, E) {
    const proj = model.weight(l, "attn.proj"),
      out = new Float32Array(D);
    for (let i = 0; i < D; i++) for (let e = 0; e < E; e++) out[i] += proj[i * D + h * E + e] * v[e];
    return out;
  }
  parts(t, id, rival) {
    // the guess after every layer, and what each part adds to one token's logit and its rival's
    const model = this.shown(),
      own = guessesOf(model.logits(t), model.products),
      name = (i) => this.tokenizer.piece(i)[0];
    const chosen = id ?? own.top[0][0],
      other = rival ?? own.top.find(([i]) => i !== chosen)[0];
    const lens = Array.from({ length: model.L + 1 }, (_, layer) => {
      const logits = model.lens(layer, t),
        { sum, top } = guessesOf(logits, this.products);
      return { top: top.map(([i, p]) => [name(i), p]), p: Math.exp(logits[chosen] - sum), logit: logits[chosen] };
    });
    const real = model.logits(t)[chosen];
    return {
      lens,
      real,
      chosen: [chosen, name(chosen)],
      other: [other, name(other)],
      ...model.contributions(t, chosen, other),
    };
  }
  // The probability of a word after a text: of all its tokens, one after another. What the page shows stays as it is.
  chance(text, word) {
    const from = this.encode(text).ids.length,
      { ids } = this.encode(text + word);
    this.trial ??= this.make();
    this.trial.run(ids);
    let sum = 0;
    for (let t = from; t < ids.length; t++) {
      const logits = this.trial.logits(t - 1);
      sum += logits[ids[t]] - guessesOf(logits, this.products).sum;
    }
    return Math.exp(sum);
  }
  // The guess at token t with one head more switched off: [logarithm of the probability of id, loss of the text].
  without(head, t, id) {
    const base = this.shown();
    this.trial ??= this.make();
    const edit = { heads: new Set([...base.edit.heads, head]), mlps: base.edit.mlps, closed: base.edit.closed };
    this.trial.runFrom(base, Math.floor(head / base.H), edit);
    this.trial.head(t, t + 1);
    const logits = this.trial.logits(t);
    return logits[id] - guessesOf(logits, this.products).sum;
  }
}

// ---- opening: all memory is reserved before the first number is placed
async function openRuns({ runs, tokenizer, code }) {
  const unpacked = await Promise.all(runs.map((run) => unpack(run.data))),
    sizes = runs.map((run, i) => memoryOf(run, unpacked[i]));
  let products = new PlainProducts();
  try {
    products = await WasmProducts.open(await unpack(code));
    products.reserve(sizes.reduce((a, b) => a + b, 0));
  } catch (error) {
    products = new PlainProducts();
    products.why = String(error);
  }
  const bpe = new Bpe(tokenizer);
  return {
    products,
    runs: runs.map(
      (run, i) =>
        new LiveRun(
          run.config,
          readWeights(run.header, unpacked[i], (n) => products.floats(n)),
          products,
          bpe,
        ),
    ),
  };
}
function memoryOf({ config, header }) {
  const numbers = header.reduce((a, [, , shape]) => a + shape.reduce((x, y) => x * y, 1) * 4 + 32, 0);
  const M = header.find(([name]) => name === "blocks.0.mlp.gate.weight")?.[2][0];
  return numbers + (config.kind === "gpt" ? 3 * Gpt.bytes(config, M) : 2 * WindowMlp.bytes(config));
}

// ---- questions
let opened = null,
  opening = null,
  stopped = 0;
// Lets the next question in. A message comes at once; a timer would wait 4 ms. Each has a channel of its own, since
// several may wait.
const pause = () =>
  new Promise((go) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      go();
    };
    port2.postMessage(0);
  });
const editOf = ({ heads = [], mlps = [], closed = [] } = {}) => ({
  heads: new Set(heads),
  mlps: new Set(mlps),
  closed,
});
const ANSWERS = {
  async open(asked) {
    opening = openRuns(asked);
    opened = await opening;
    return { products: opened.products.name, why: opened.products.why };
  },
  document: ({ run, text, edit }) => opened.runs[run].document(text, editOf(edit)),
  chance: ({ run, text, word }) => opened.runs[run].chance(text, word),
  heads: ({ run }) => opened.runs[run].heads(),
  logits: ({ run, t }) => Array.from(opened.runs[run].shown().logits(t)),
  steps: ({ run, layer, head }) => opened.runs[run].steps(layer, head),
  async flow({ run, t }) {
    const live = opened.runs[run],
      model = live.shown(),
      ids = model.ids.join(),
      layers = rolling(model, t, 0.002);
    for (let layer = layers.next(); ; layer = layers.next()) {
      if (layer.done) return layer.value;
      await pause();
      if (live.shown() !== model || model.ids.join() !== ids) return null; // another text or change came in between
    }
  },
  parts: ({ run, t, id, rival }) => opened.runs[run].parts(t, id, rival),
  stop: ({ id }) => void (stopped = id),
  async matter({ run, t, target }, number) {
    const live = opened.runs[run],
      model = live.shown(),
      list = [],
      id = target ?? guessesOf(model.logits(t), model.products).top[0][0];
    const base = model.logits(t)[id] - guessesOf(model.logits(t), model.products).sum,
      ids = model.ids.join();
    for (let head = 0; head < model.L * model.H; head++) {
      if (number <= stopped || live.shown() !== model || model.ids.join() !== ids) return null;
      list.push(live.without(head, t, id) - base);
      if (head % 6 === 5) await pause();
    }
    return { t, list, token: live.tokenizer.piece(id)[0], p: Math.exp(base) };
  },
  async write({ run, text, edit, temperature, topK, topP, seed, count }, number) {
    const live = opened.runs[run],
      changes = editOf(edit),
      next = drawer(seed),
      { ids } = live.encode(text);
    let written = 0;
    for (; written < count && ids.length < live.config.context; written++) {
      if (number <= stopped) return { written, why: "stopped" };
      const { model } = live.read(ids, changes),
        choice = filtered(model.logits(ids.length - 1), { temperature, topK, topP });
      const id = draw(choice, next()),
        name = (i) => live.tokenizer.piece(i)[0];
      const shown = likeliest(choice, 8).map(([i, p]) => [name(i), p]),
        p = choice.all.find(([i]) => i === id)[1];
      if (id === live.tokenizer.start) return { written, why: "end" };
      ids.push(id);
      postMessage({
        number,
        step: { text: live.tokenizer.decode(ids.slice(1)), token: name(id), id, p, shown, left: choice.all.length },
      });
      await pause();
    }
    return { written, why: ids.length >= live.config.context ? "full" : "done" };
  },
};
async function answerTo({ data: { number, ask, ...asked } }) {
  try {
    if (ask !== "open") await opening; // asked early: it waits
    const value = await ANSWERS[ask](asked, number);
    postMessage({ number, value }, value?.maps ? Object.values(value.maps).map((x) => x.buffer) : []);
  } catch (error) {
    postMessage({ number, error: String(error) });
  }
}
if (typeof WorkerGlobalScope !== "undefined") addEventListener("message", answerTo);
