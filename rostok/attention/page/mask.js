// Build the causal mask by hand, and the bill for looking at everything.
import { clamp, cost, maskCheck, maskRow } from "./core.js";
import { $, button, el, keepFocus, num, rampCss, rampInk, redraw, set, shade, slider, state, t } from "./ui.js";
import { docOf } from "./documents.js";

const WORDS = ["◆", "The", "dog", "bit", "the", "boy"],
  N = WORDS.length;
const SCORES = [
  // q·k / √d, chosen by hand; every row has something to see in the future as well
  [1.0, 0.2, 0.6, 0.1, 0.3, 0.9],
  [0.9, 0.8, 1.7, 0.2, 0.4, 1.1],
  [0.6, 1.2, 0.7, 1.6, 0.2, 0.8],
  [0.5, 0.3, 1.9, 0.6, 0.4, 2.1],
  [0.8, 0.9, 0.4, 0.7, 0.6, 1.8],
  [0.4, 0.2, 1.3, 1.8, 0.7, 0.9],
];
const all = (f) => Array.from({ length: N }, (_, i) => Array.from({ length: N }, (__, j) => f(i, j)));
// What is closed is in the address: a number for each row, whose bits are the closed cells.
const rowsShut = () => (state.mask ?? "").split(".").map(Number);
const openNow = () => {
  const shut = rowsShut();
  return all((i, j) => !((shut[i] >> j) & 1));
};
let verdict = "start";
let focus = [0, 0];

function toggle(i, j) {
  const shut = Array.from({ length: N }, (_, row) => rowsShut()[row] || 0);
  shut[i] ^= 1 << j;
  verdict = "start";
  focus = [i, j];
  set({ mask: shut.some(Boolean) ? shut.join(".") : undefined });
}
function check() {
  const found = maskCheck(openNow());
  verdict = found.right ? "right" : found.self.length ? "self" : found.future.length ? "future" : "past";
  drawMask();
}
function cell(i, j, yes, w, bad) {
  const code = yes ? shade(w) : 0,
    [q, k] = [WORDS[i], WORDS[j]];
  return el("button", {
    type: "button",
    role: "gridcell",
    class: `cell${yes ? "" : " shut"}${bad ? " bad" : ""}`,
    "data-key": `m${i}-${j}`,
    tabindex: focus[0] === i && focus[1] === j ? 0 : -1,
    "aria-selected": String(yes),
    style: yes && Number.isFinite(w) ? { background: rampCss(code), color: rampInk(code) } : {},
    "aria-label": t(yes ? "mask.open" : "mask.shut", { q, k, w: num(100 * w, 0) }),
    text: Number.isNaN(w) ? "NaN" : yes ? num(100 * w, 0) : "",
    onclick: () => toggle(i, j),
  });
}
function maskGrid(open, bad) {
  const top = WORDS.map((w) => el("span", { role: "columnheader", class: "top", text: w }));
  const rows = open.map((row, i) => {
    const weights = maskRow(SCORES[i], row),
      side = el("span", { role: "rowheader", class: "side", text: WORDS[i] });
    return el(
      "div",
      { role: "row", class: "mask-row" },
      side,
      ...row.map((yes, j) => cell(i, j, yes, weights[j], bad(i, j))),
    );
  });
  const corner = el(
    "span",
    { role: "columnheader", class: "corner" },
    el("span", { class: "sr", text: t("mask.corner") }),
  );
  const look = { class: "mask-grid", role: "grid", "aria-label": t("mask.grid"), style: { "--n": N } };
  const grid = el("div", look, el("div", { role: "row", class: "mask-row" }, corner, ...top), ...rows);
  grid.addEventListener("keydown", (e) => moveFocus(e, grid));
  grid.addEventListener("focusin", (e) => {
    const m = /^m(\d+)-(\d+)$/.exec(e.target.dataset.key ?? "");
    if (m) focus = [Number(m[1]), Number(m[2])];
  });
  return grid;
}
function moveFocus(e, grid) {
  const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[e.key];
  if (!by) return;
  e.preventDefault();
  e.stopPropagation();
  focus = [clamp(focus[0] + by[0], 0, N - 1), clamp(focus[1] + by[1], 0, N - 1)];
  for (const c of grid.querySelectorAll(".cell")) c.tabIndex = c.dataset.key === `m${focus.join("-")}` ? 0 : -1;
  $(`[data-key="m${focus.join("-")}"]`, grid).focus();
}
function openAll() {
  verdict = "start";
  set({ mask: undefined });
}
export function drawMask() {
  const body = $("#mask-body"),
    open = openNow(),
    wrong = verdict === "start" || verdict === "right" ? null : maskCheck(open);
  const bad = (i, j) =>
    wrong && [wrong.future, wrong.self, wrong.past].some((list) => list.some(([a, b]) => a === i && b === j));
  const blind = open.findIndex((row) => row.every((x) => !x));
  const message = blind >= 0 && verdict === "start" ? t("mask.blind", { q: WORDS[blind] }) : t(`mask.${verdict}`);
  const old = $("#length", body);
  if (old && old === document.activeElement && old.dataset.lang === state.lang) return bill();
  const bar = slider({
    id: "length",
    label: t("mask.length"),
    min: 2,
    max: 512,
    step: 1,
    value: state.T,
    show: (x) => num(x, 0),
    move: (T) => set({ T }),
  });
  bar.querySelector("input").dataset.lang = state.lang;
  const buttons = [
    button(t("mask.check"), check, { class: "button main", id: "mask-check" }),
    button(t("mask.reset"), openAll, { id: "mask-reset" }),
  ];
  const price = el(
    "div",
    { class: "bill" },
    el("h3", { text: t("mask.bill") }),
    el("p", { class: "small", text: t("mask.bill.text") }),
    bar,
    el("dl", { class: "counts", id: "counts" }),
  );
  const say = el(
    "div",
    { class: "mask-say" },
    el("p", { class: `callout ${verdict}`, role: "status", id: "mask-note", text: message }),
    el("div", { class: "row" }, ...buttons),
    el("p", { class: "small", text: t("mask.legend") }),
    price,
  );
  keepFocus(body, () =>
    redraw(body, el("div", { class: "split mask-split" }, el("div", { class: "mask-side" }, maskGrid(open, bad)), say)),
  );
  return bill();
}
function bill() {
  const { n_layer, n_head } = docOf(state.ex, state.run).model,
    heads = n_layer * n_head || 1,
    now = cost(state.T, heads),
    twice = cost(2 * state.T);
  redraw(
    $("#counts"),
    ...[
      ["all", now.all],
      ["kept", now.kept],
      ["masked", now.masked],
      ["total", now.total],
    ].map(([k, x]) =>
      el(
        "div",
        { "data-count": k },
        el("dt", { text: t(`mask.count.${k}`, { n: num(heads, 0) }) }),
        el("dd", { text: num(x, 0) }),
      ),
    ),
    el(
      "div",
      { "data-count": "twice" },
      el("dt", { text: t("mask.count.twice", { n: num(2 * state.T, 0) }) }),
      el("dd", { text: `× ${num(twice.all / now.all, 0)}` }),
    ),
  );
}
