// One token, one head, every number from q, k and v to what the head adds to the stream.
import { headKeys, headSteps, length } from "./core.js";
import { $, button, el, num, percent, redraw, sv, t } from "./ui.js";
import { headName, panels, quoted } from "./viewer.js";

// A vector as a row of bars: up is positive, down is negative. Scaled to its own largest number.
export function barcode(xs, label) {
  const n = xs.length, top = Math.max(1e-9, ...xs.map(Math.abs)), W = 256, H = 36, w = W / n;
  const path = (keep) => Array.from(xs, (x, i) => (keep(x) ? `M${(i * w + w * 0.15).toFixed(2)} ${H / 2}v${((-x / top) * (H / 2)).toFixed(2)}h${(w * 0.7).toFixed(2)}V${H / 2}z` : "")).join("");
  return sv("svg", { class: "barcode", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    sv("path", { class: "plus", d: path((x) => x > 0) }), sv("path", { class: "minus", d: path((x) => x <= 0) }));
}
const line = (name, xs) => el("div", { class: "vector" }, el("span", { class: "vector-name", text: name }), barcode(xs, t("steps.vector", { name, n: xs.length })),
  el("span", { class: "vector-note", text: t("steps.length", { x: num(length(xs), 2) }) }));
const few = (xs) => `(${Array.from(xs.slice(0, 4), (x) => num(x, 3)).join(t("list.comma"))}${t("list.comma")}…)`;

// "W_Q" with the Q below the line
export const lowered = (text) => text.split(/_(\w+)/).map((part, i) => (i % 2 ? el("sub", { text: part }) : part));

export function drawSteps() {
  const p = panels.a, { doc, token } = p, own = doc.steps.find((h) => h.layer === p.layer && h.head === p.head);
  const body = $("#steps-body");
  if (!doc.steps.length) return redraw(body, el("div", { class: "card empty" }, el("p", { text: t("steps.none") })));
  const head = own ?? doc.steps[0], name = headName(head.layer, head.head); // a head without numbers here: show one that has them
  const note = own ? null : el("div", { class: "callout steps-note" }, el("span", { text: t("steps.other", { head: headName(p.layer, p.head), shown: name }) }),
    ...doc.steps.slice(0, 12).map((h) => button(headName(h.layer, h.head), () => p.pick(h.layer, h.head))));
  const d = doc.model.d_head, theta = doc.model.rope_theta, eps = doc.model.norm_eps;
  head.keys ??= headKeys({ k: head.k, kGain: head.k_gain, theta, eps });
  const s = headSteps({ q: head.q, v: head.v, qGain: head.q_gain, t: token, theta, eps, keys: head.keys });
  const row = doc.weights.row(head.layer, head.head, token), tops = doc.weights.top(head.layer, head.head, token).map(([j]) => j), best = tops[0], other = doc.text.T - 1 - token;
  const off = Math.max(...s.weights.map((w, j) => Math.abs(w - row[j])));
  const q = quoted(doc, token), k = quoted(doc, best);
  const card = (n, key, formula, vars, ...more) => el("li", { class: "card step", "data-step": n },
    el("div", { class: "step-head" }, el("span", { class: "step-n", "aria-hidden": "true", text: n }), el("h3", { text: t(`steps.${key}`) })),
    el("p", { class: "formula", translate: "no" }, ...lowered(formula)), el("p", { class: "small" }, ...lowered(t(`steps.${key}.text`, vars))), ...more);
  const table = (columns, cells) => el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...columns.map((c) => el("th", { scope: "col" }, ...lowered(c))))),
    el("tbody", {}, ...tops.map((j) => el("tr", { "data-key": j }, el("th", { scope: "row" }, el("bdi", { text: quoted(doc, j) }), el("span", { class: "place", text: ` ${j}` })),
      ...cells(j).map((c) => el("td", { class: "n", text: c }))))));
  const parts = tops.map((j) => row[j] * head.vo_norm[j]), all = row.reduce((a, w, j) => a + w * head.vo_norm[j], 0) || 1;
  return redraw(body, note, el("p", { class: "steps-for" }, t("steps.for", { head: name, n: token }), " ", el("bdi", { class: "chip", text: q })),
    el("ol", { class: "cards" },
      card(1, "raw", `q = x·W_Q    k = x·W_K`, { q, k, d }, line(`q ${q}`, s.qRaw), el("p", { class: "nums", text: few(s.qRaw) }), line(`k ${k}`, head.k[best]), el("p", { class: "nums", text: few(head.k[best]) })),
      card(2, "norm", `q ← q / √(mean q² + ε) · g`, { before: num(length(s.qRaw), 2), after: num(length(s.qNorm), 2), root: num(Math.sqrt(d), d === 64 ? 0 : 2) }, line(`q ${q}`, s.qNorm), el("p", { class: "nums", text: few(s.qNorm) }), line(`k ${k}`, s.kNorm[best])),
      card(3, "rope", `x₁ ← x₁ cos φ − x₂ sin φ\nx₂ ← x₂ cos φ + x₁ sin φ`, { n: token, m: best, gap: token - best }, line(`q ${q}`, s.qRope), el("p", { class: "nums", text: few(s.qRope) }), line(`k ${k}`, s.kRope[best])),
      card(4, "dot", `s_j = q·k_j / √${d}`, { root: num(Math.sqrt(d), d === 64 ? 0 : 2) }, table([t("keys.token"), "q·k", `÷ √${d}`], (j) => [num(s.dots[j], 2), num(s.scaled[j], 3)])),
      card(5, "softmax", `a_j = e^(s_j − max) / Σ`, { other: num(other, 0), max: num(s.top, 3), total: num(s.total, 3), off: s.off }, table([t("keys.token"), "e^(s−max)", t("keys.weight")], (j) => [num(s.exps[j], 4), num(s.weights[j], 4)]),
        el("p", { class: "small check", text: t("steps.check", { off: off < 1e-6 ? "10⁻⁶" : num(off, 5) }) })),
      card(6, "mix", `o = Σ a_j v_j,   o·W_O`, { norm: num(head.result_norm[token], 2), D: doc.model.d_model }, line("Σ a·v", s.mixed), el("p", { class: "nums", text: few(s.mixed) }),
        table([t("keys.token"), "a_j", t("steps.share")], (j) => [num(row[j], 3), percent(parts[tops.indexOf(j)] / all)]),
        el("p", { class: "nums" }, ...lowered("o·W_O"), ` = ${few(head.result_start[token])}`))));
}
