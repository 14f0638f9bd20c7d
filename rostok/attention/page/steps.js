// One token, one head, every number from q, k and v to what the head adds to the stream.
import { headKeys, headSteps, length } from "./core.js";
import { $, button, el, num, percent, redraw, sv, t } from "./ui.js";
import { headName, maps, quoted } from "./documents.js";
import { liveSteps } from "./live.js";
import { front } from "./viewer.js";

// A vector as a row of bars: up is positive, down is negative. Scaled to its own largest number.
export function barcode(xs, label) {
  const top = Math.max(1e-9, ...xs.map(Math.abs)),
    W = 256,
    H = 36,
    w = W / xs.length;
  const bar = (x, i) =>
    `M${(i * w + w * 0.15).toFixed(2)} ${H / 2}v${((-x / top) * (H / 2)).toFixed(2)}h${(w * 0.7).toFixed(2)}V${H / 2}z`;
  const path = (keep) => Array.from(xs, (x, i) => (keep(x) ? bar(x, i) : "")).join("");
  return sv(
    "svg",
    { class: "barcode", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    sv("path", { class: "plus", d: path((x) => x > 0) }),
    sv("path", { class: "minus", d: path((x) => x <= 0) }),
  );
}
const line = (name, xs) =>
  el(
    "div",
    { class: "vector" },
    el("span", { class: "vector-name", text: name }),
    barcode(xs, t("steps.vector", { name, n: xs.length })),
    el("span", { class: "vector-note", text: t("steps.length", { x: num(length(xs), 2) }) }),
  );
const few = (xs) => `(${Array.from(xs.slice(0, 4), (x) => num(x, 3)).join(t("list.comma"))}${t("list.comma")}…)`;
const firstFew = (xs) => el("p", { class: "nums", text: few(xs) });

// "W_Q" with the Q below the line
export const lowered = (text) => text.split(/_(\w+)/).map((part, i) => (i % 2 ? el("sub", { text: part }) : part));

function card(n, key, formula, vars, ...more) {
  return el(
    "li",
    { class: "card step", "data-step": n },
    el(
      "div",
      { class: "step-head" },
      el("span", { class: "step-n", "aria-hidden": "true", text: n }),
      el("h3", { text: t(`steps.${key}`) }),
    ),
    el("p", { class: "formula", translate: "no" }, ...lowered(formula)),
    el("p", { class: "small" }, ...lowered(t(`steps.${key}.text`, vars))),
    ...more,
  );
}
function table({ doc, tops }, columns, cells) {
  // a row for each of the keys with the largest weights
  const row = (j) =>
    el(
      "tr",
      { "data-key": j },
      el("th", { scope: "row" }, el("bdi", { text: quoted(doc, j) }), el("span", { class: "place", text: ` ${j}` })),
      ...cells(j).map((c) => el("td", { class: "n", text: c })),
    );
  const head = el("tr", {}, ...columns.map((c) => el("th", { scope: "col" }, ...lowered(c))));
  return el("table", { class: "plain" }, el("thead", {}, head), el("tbody", {}, ...tops.map(row)));
}

// ---- the six cards; each takes everything that is known about this token in this head
function rawCard({ s, head, q, k, best }) {
  const { d } = head;
  return card(
    1,
    "raw",
    "q = x·W_Q    k = x·W_K",
    { q, k, d },
    line(`q ${q}`, s.qRaw),
    firstFew(s.qRaw),
    line(`k ${k}`, head.k[best]),
    firstFew(head.k[best]),
  );
}
function normCard({ s, q, k, best, root }) {
  const vars = { before: num(length(s.qRaw), 2), after: num(length(s.qNorm), 2), root };
  return card(
    2,
    "norm",
    "q ← q / √(mean q² + ε) · g",
    vars,
    line(`q ${q}`, s.qNorm),
    firstFew(s.qNorm),
    line(`k ${k}`, s.kNorm[best]),
  );
}
function ropeCard({ s, q, k, best, token }) {
  const formula = "x₁ ← x₁ cos φ − x₂ sin φ\nx₂ ← x₂ cos φ + x₁ sin φ";
  return card(
    3,
    "rope",
    formula,
    { n: token, m: best, gap: token - best },
    line(`q ${q}`, s.qRope),
    firstFew(s.qRope),
    line(`k ${k}`, s.kRope[best]),
  );
}
function dotCard(all) {
  const { s, head, root } = all;
  const cells = (j) => [num(s.dots[j], 2), num(s.scaled[j], 3)];
  return card(
    4,
    "dot",
    `s_j = q·k_j / √${head.d}`,
    { root },
    table(all, [t("keys.token"), "q·k", `÷ √${head.d}`], cells),
  );
}
function softmaxCard(all) {
  const { s, row, doc, token } = all,
    off = Math.max(...s.weights.map((w, j) => Math.abs(w - row[j])));
  const vars = { other: num(doc.text.T - 1 - token, 0), max: num(s.top, 3), total: num(s.total, 3), off };
  return card(
    5,
    "softmax",
    "a_j = e^(s_j − max) / Σ",
    vars,
    table(all, [t("keys.token"), "e^(s−max)", t("keys.weight")], (j) => [num(s.exps[j], 4), num(s.weights[j], 4)]),
    el("p", { class: "small check", text: t("steps.check", { off: off < 1e-6 ? "10⁻⁶" : num(off, 5) }) }),
  );
}
function mixCard(all) {
  const { s, head, doc, row, token } = all,
    parts = Array.from(row, (w, j) => w * head.vo_norm[j]);
  const sum = parts.reduce((a, b) => a + b, 0) || 1;
  return card(
    6,
    "mix",
    "o = Σ a_j v_j,   o·W_O",
    { norm: num(head.result_norm[token], 2), D: doc.model.d_model },
    line("Σ a·v", s.mixed),
    firstFew(s.mixed),
    table(all, [t("keys.token"), "a_j", t("steps.share")], (j) => [num(row[j], 3), percent(parts[j] / sum)]),
    el("p", { class: "nums" }, ...lowered("o·W_O"), ` = ${few(head.result_start[token])}`),
  );
}
const CARDS = [rawCard, normCard, ropeCard, dotCard, softmaxCard, mixCard];

function otherHead(panel, shown) {
  // the chosen head has no numbers on this page
  const go = panel.doc.steps
    .slice(0, 12)
    .map((h) => button(headName(h.layer, h.head), () => panel.pick(h.layer, h.head)));
  const text = t("steps.other", { head: headName(panel.layer, panel.head), shown });
  return el("div", { class: "callout steps-note" }, el("span", { text }), ...go);
}
function headOf({ doc, layer, head }) {
  // the numbers of the chosen head, or of another that has some; null: asked for
  if (doc.live) {
    const asked = liveSteps(doc, layer, head);
    if (!asked.value) asked.ready.then(drawSteps);
    return asked.value;
  }
  return doc.steps.find((h) => h.layer === layer && h.head === head) ?? doc.steps[0];
}
export function drawSteps() {
  const p = front(),
    { doc, token } = p,
    body = $("#steps-body");
  $("#steps").hidden = !maps(doc);
  if ($("#steps").hidden) return;
  const head = headOf(p);
  if (!head && doc.live) return;
  if (!head) return redraw(body, el("div", { class: "card empty" }, el("p", { text: t("steps.none") })));
  const own = head.layer === p.layer && head.head === p.head,
    name = headName(head.layer, head.head);
  const { d_head: d, rope_theta: theta, norm_eps: eps } = doc.model;
  head.d = d;
  head.keys ??= headKeys({ k: head.k, kGain: head.k_gain, theta, eps });
  const s = headSteps({ q: head.q, v: head.v, qGain: head.q_gain, t: token, theta, eps, keys: head.keys });
  const tops = doc.weights.top(head.layer, head.head, token).map(([j]) => j),
    best = tops[0];
  const row = doc.weights.row(head.layer, head.head, token),
    root = num(Math.sqrt(d), d === 64 ? 0 : 2);
  const all = { doc, token, head, s, row, tops, best, root, q: quoted(doc, token), k: quoted(doc, best) };
  redraw(
    body,
    own ? null : otherHead(p, name),
    el(
      "p",
      { class: "steps-for" },
      t("steps.for", { head: name, n: token }),
      " ",
      el("bdi", { class: "chip", text: all.q }),
    ),
    el("ol", { class: "cards" }, ...CARDS.map((draw) => draw(all))),
  );
}
