// A window of W tokens beside attention: what falls out of it, and what it costs to make it wider.
import { ask, live } from "./live.js";
import { barCell } from "./viewer.js";
import { chance } from "./next.js";
import { ATTENTION_WEIGHTS, clamp, windowWeights } from "./core.js";
import { $, el, num, redraw, segment, set, slider, state, t } from "./ui.js";

// The name comes back exactly 30 tokens after its first mention; "|" parts the tokens.
const STORY = (
  "◆|There| was| a| little| dragon| named| Zorbin|.| He| lived| on| a| green| hill| and| he| was| afraid| of| the| dark|." +
  '| One| night| a| star| fell| down|.| "|Do| not| cry|,|"| said| Zorbin|.| "|You| can| stay| with| me|.|"'
).split("|");
export const FIRST = STORY.indexOf(" Zorbin");
export const TARGET = STORY.lastIndexOf(" Zorbin");

function storyToken(piece, j, target) {
  const inside = j < target && target - j <= state.W;
  const kind = j === target ? "target" : j > target ? "future" : inside ? "inside" : "lost";
  return el("button", {
    type: "button",
    class: `wtok ${kind}${j === FIRST ? " name" : ""}`,
    "data-key": `w${j}`,
    tabindex: j === target ? 0 : -1,
    "aria-label": `${piece.trim()}: ${t(`window.${kind}`)}`,
    "aria-pressed": String(j === target),
    text: j === target ? "?" : piece.trim(),
    onclick: () => set({ wt: j }),
  });
}
function storyStrip(target) {
  const toks = STORY.map((piece, j) => storyToken(piece, j, target));
  const strip = el("div", { class: "wstrip", role: "group", "aria-label": t("window.strip") }, ...toks);
  strip.addEventListener("keydown", (e) => {
    const to = { ArrowLeft: target - 1, ArrowRight: target + 1, Home: 0, End: STORY.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    set({ wt: clamp(to, 0, STORY.length - 1) });
    $(`[data-key="w${state.wt}"]`).focus();
  });
  return strip;
}
function answer(target) {
  // is the name's first mention still in the window?
  const gap = target - FIRST,
    has = gap > 0 && gap <= state.W,
    lost = Math.max(0, target - state.W);
  const text =
    gap <= 0
      ? t("window.before")
      : t(has ? "window.yes" : "window.no", { gap: num(gap, 0), W: num(state.W, 0), lost: num(lost, 0) });
  return el("p", { class: `callout ${has ? "right" : "lost"}`, role: "status", id: "window-note", text });
}
// What the runs of a live page really give the word there, each with all that it can see.
const chances = new Map(); // target -> [[run, probability], ...]
function realChances(target) {
  const box = el("div", { id: "window-runs" }),
    piece = STORY[target];
  if (!live.on || target < 2) return box;
  const show = (list) => {
    const rows = list.map(([name, p]) =>
      el(
        "tr",
        { "data-run": name },
        el("th", { scope: "row", text: name }),
        barCell(p),
        el("td", { class: "n", text: chance(p) }),
      ),
    );
    redraw(
      box,
      el("h3", { text: t("window.runs", { q: piece.trim() }) }),
      el("table", { class: "bars wide" }, el("tbody", {}, ...rows)),
    );
  };
  if (chances.has(target)) show(chances.get(target));
  else realChance(target).then(show);
  return box;
}
async function realChance(target) {
  const text = STORY.slice(1, target).join(""),
    list = [];
  for (const [run, { name }] of live.runs.entries())
    list.push([name, await ask("chance", { run, text, word: STORY[target] })]);
  chances.set(target, list);
  return list;
}
function price() {
  const top = windowWeights(512);
  const bar = (k, x, label) => {
    const track = el("span", { style: { width: `${Math.max(0.4, (100 * x) / top)}%` } });
    const value = el(
      "dd",
      {},
      el("span", { class: "track", "aria-hidden": "true" }, track),
      el("b", { text: num(x, 0) }),
    );
    return el("div", { "data-cost": k }, el("dt", { text: label }), value);
  };
  const window = bar("window", windowWeights(state.W), t("window.cost", { W: num(state.W, 0) }));
  return el(
    "dl",
    { class: "versus", id: "versus" },
    window,
    bar("attention", ATTENTION_WEIGHTS, t("window.attention")),
  );
}
export function drawWindow() {
  const body = $("#window-body"),
    target = Math.min(state.wt ?? TARGET, STORY.length - 1),
    old = $("#width", body);
  const live = el("div", { id: "window-live" }, storyStrip(target), answer(target), realChances(target), price());
  if (old && old.dataset.lang === state.lang) {
    const held = document.activeElement?.dataset?.key;
    $("#window-live").replaceWith(live);
    if (held?.startsWith("w")) $(`[data-key="${held}"]`, live)?.focus({ preventScroll: true });
    old.value = state.W;
    old.dispatchEvent(new Event("show"));
    return marks();
  }
  const bar = slider({
    id: "width",
    label: t("window.width"),
    min: 1,
    max: 512,
    step: 1,
    value: state.W,
    show: (x) => num(x, 0),
    move: (x) => set({ W: x }),
  });
  const input = bar.querySelector("input");
  input.dataset.lang = state.lang;
  input.addEventListener("show", () => {
    bar.querySelector("output").textContent = num(state.W, 0);
    input.setAttribute("aria-valuetext", num(state.W, 0));
  });
  redraw(body, el("div", { class: "controls" }, bar, el("div", { id: "window-marks" })), live);
  return marks();
}
function marks() {
  const box = $("#window-marks"),
    held = box.contains(document.activeElement) ? document.activeElement.dataset.value : null;
  redraw(
    box,
    segment(
      t("window.marks"),
      [8, 16, 30, 64, 512].map((x) => [x, String(x)]),
      state.W,
      (W) => set({ W }),
    ),
  );
  if (held) box.querySelector(`[data-value="${held}"]`)?.focus({ preventScroll: true });
}
