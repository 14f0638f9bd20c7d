// The address keeps the state of the page, so that a link shows another person the same view; here it is read back.
import { clamp, whole } from "./core.js";
import { live } from "./live.js";
import { docOf, docs, runs, texts, viewOf } from "./documents.js";
import { state } from "./ui.js";

const UNDER = ["weight", "p", "rank", "loss", "change", "other", "seen"];
const SORT = ["layer", "label", "induction", "previous", "same", "start", "self", "entropy"];
const one = (list, word, otherwise) => (list.includes(word) ? word : otherwise);
const form = (pattern, word) => (pattern.test(word ?? "") ? word : undefined);
const preferred = () => ((navigator.language || "en").toLowerCase().startsWith("ru") ? "ru" : "en");

function choice(from) {
  // text, run, token, layer, head; the same of the second panel
  const own = live.on && from.text !== undefined,
    ex = own ? "own" : one(texts(), from.ex, live.on ? texts()[0] : docs[0].text.name);
  const doc = docOf(ex, from.run),
    others = runs(ex).filter((r) => r !== doc.model.name);
  Object.assign(state, { ex, text: own ? from.text : undefined, run: doc.model.name });
  state.run2 = runs(ex).length > 1 ? one(runs(ex), from.run2, others[0]) : undefined;
  const v = viewOf(doc),
    m = doc.model,
    second = docOf(ex, state.run2).model;
  const place = (name, n, start) => whole(from[name], 1, Math.max(1, n), start + 1) - 1;
  return {
    t: whole(from.t, 0, doc.text.T - 1, v.token),
    l: place("l", m.n_layer, v.layer),
    h: place("h", m.n_head, v.head),
    l2: place("l2", second.n_layer, 0),
    h2: place("h2", second.n_head, 0),
  };
}
export function restore(from) {
  // everything is in range afterwards
  Object.assign(state, choice(from), {
    lang: one(["en", "ru"], from.lang, preferred()),
    theme: one(["light", "dark"], from.theme),
    cmp: from.cmp === "1" ? 1 : undefined,
    under: one(UNDER, from.under, "weight"),
    sort: one(SORT, from.sort, "layer"),
    off: form(/^\d+\.\d+(_\d+\.\d+)*$/, from.off),
    mlp: form(/^\d+(_\d+)*$/, from.mlp),
    cut: form(/^\d+-\d+(_\d+-\d+)*$/, from.cut),
    also: form(/^\d+(_\d+)*$/, from.also),
    hide: from.hide === "1" ? 1 : undefined,
    of: from.of === "b" ? "b" : undefined,
    pin: from.pin === "0" ? 0 : undefined,
    keys: from.keys === "0" ? 0 : undefined,
    plain: from.plain === "1" ? "1" : undefined,
    big: from.big === "1" ? 1 : undefined,
    sec: form(/^[a-z]+$/, from.sec),
    sharp: clamp(Number(from.sharp ?? 1) || 0, 0, 5),
    norm: from.norm === "1" ? 1 : undefined,
    d: Number(from.d) || 64,
    plane: form(/^(zero|long|nobody|-?[\d.]+,-?[\d.]+(_-?[\d.]+,-?[\d.]+){4})$/, from.plane),
    mask: form(/^\d+(\.\d+){5}$/, from.mask),
    quiz: form(/^[0-2-]{2}$/, from.quiz),
    T: whole(from.T, 2, 512, 512),
    W: whole(from.W, 1, 512, 8),
    wt: from.wt === undefined ? undefined : whole(from.wt, 0, 46, undefined),
  });
}
