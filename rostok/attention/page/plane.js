// The playground: four keys and a query in the plane, values as colours.
import { PLANE, clamp, nobodyFits, plane } from "./core.js";
import {
  $,
  barCell,
  button,
  el,
  keepFocus,
  num,
  percent,
  redraw,
  saveButtons,
  set,
  slider,
  standAlone,
  state,
  sv,
  t,
} from "./ui.js";

const R = 3.2,
  SIZE = 460,
  UNIT = SIZE / (2 * R),
  REACH = R - 0.1; // how far a point may go
const px = ([x, y]) => [SIZE / 2 + x * UNIT, SIZE / 2 - y * UNIT];
// The arrangement is in the address: nothing (the start), the name of an experiment, or five points, the query first.
const EXPERIMENTS = {
  zero: () => ({ q: [0, 0], keys: PLANE.keys }),
  long: () => ({ q: PLANE.q.map((x) => 2 * x), keys: PLANE.keys }),
  nobody: () => nobodyFits(),
};
function sceneNow() {
  const word = state.plane;
  if (!word) return { q: PLANE.q, keys: PLANE.keys, experiment: "start" };
  if (EXPERIMENTS[word]) return { ...EXPERIMENTS[word](), experiment: word };
  const [q, ...keys] = word.split("_").map((point) => point.split(",").map((x) => clamp(Number(x), -REACH, REACH)));
  return { q, keys, experiment: "own" };
}
function planeNow() {
  const scene = sceneNow();
  return { ...scene, ...plane({ ...scene, values: PLANE.values, sharp: state.sharp, norm: state.norm === 1 }) };
}
const cssColour = (c) => `rgb(${c.map((x) => Math.round(255 * x)).join(" ")})`;

const experiment = (name) => set({ plane: name === "start" ? undefined : name, sharp: 1 });
function move(i, to) {
  // i = -1 moves the query
  const { q, keys } = sceneNow(),
    points = [q, ...keys];
  points[i + 1] = to;
  const round = (x) => Number(clamp(x, -REACH, REACH).toFixed(3));
  set({ plane: points.map((point) => point.map(round).join(",")).join("_") });
}
function handle(i, [x, y], name, node) {
  const [cx, cy] = px([x, y]),
    label = t("plane.handle", { name, x: num(x, 2), y: num(y, 2) });
  const look = {
    class: `handle ${i < 0 ? "query" : "key"}`,
    tabindex: "0",
    role: "button",
    "data-key": `h${i}`,
    "aria-label": label,
  };
  const dot = sv("g", look, sv("circle", { cx, cy, r: 22, fill: "transparent" }), node(cx, cy));
  dot.addEventListener("keydown", (e) => {
    const step = e.shiftKey ? 1 : 0.1,
      by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[e.key];
    if (!by) return;
    e.preventDefault();
    e.stopPropagation();
    const { q, keys } = sceneNow(),
      from = i < 0 ? q : keys[i];
    move(i, [from[0] + by[0], from[1] + by[1]]);
  });
  dot.addEventListener("pointerdown", (e) => {
    e.preventDefault();
    dot.focus({ preventScroll: true });
    dragWithin(i);
  });
  return dot;
}
function dragWithin(i) {
  // the picture is drawn again while dragging, so the window listens
  const drag = (m) => {
    const box = $("#plane-svg").getBoundingClientRect();
    move(i, [((m.clientX - box.left) / box.width - 0.5) * 2 * R, (0.5 - (m.clientY - box.top) / box.height) * 2 * R]);
  };
  const ends = ["pointerup", "pointercancel"];
  const stop = () => {
    removeEventListener("pointermove", drag);
    for (const end of ends) removeEventListener(end, stop);
  };
  addEventListener("pointermove", drag);
  for (const end of ends) addEventListener(end, stop);
}

// ---- the picture
const ORIGIN = px([0, 0]);
const arrow = (to, kind) => {
  const [x, y] = px(to);
  return sv("line", { class: `arrow ${kind}`, x1: ORIGIN[0], y1: ORIGIN[1], x2: x, y2: y });
};
const unit = (v) => {
  const n = Math.hypot(...v) / Math.SQRT2;
  return n > 1e-9 ? v.map((x) => x / n) : v;
};
function gridLine(i) {
  const [x, y] = px([i, i]);
  return sv("path", { class: i ? "grid" : "axis", d: `M${x} 0V${SIZE}M0 ${y}H${SIZE}` });
}
function evenedOut(now) {
  // what QK-norm makes of the arrows
  if (state.norm !== 1) return [];
  const ring = sv("circle", { class: "ring", cx: ORIGIN[0], cy: ORIGIN[1], r: Math.SQRT2 * UNIT });
  return [ring, ...now.keys.map((k) => arrow(unit(k), "ghost")), arrow(unit(now.q), "ghost query")];
}
function tag(at, text) {
  const [x, y] = px(at),
    out = Math.hypot(...at) || 1,
    near = x < 70 || x > SIZE - 70; // at an edge: above or below
  const dx = near ? 0 : (at[0] / out) * 24,
    dy = near ? (y > 60 ? -26 : 26) : (-at[1] / out) * 24;
  const anchor = dx > 8 ? "start" : dx < -8 ? "end" : "middle";
  return sv("text", { class: "tag key", x: clamp(x + dx, 26, SIZE - 26), y: y + dy + 5, "text-anchor": anchor, text });
}
function queryTag(q) {
  // half-way along the arrow, next to it
  const n = Math.hypot(...q) || 1,
    [x, y] = px([q[0] * 0.5 + (q[1] / n) * 0.28, q[1] * 0.5 - (q[0] / n) * 0.28]),
    zero = !q.some(Boolean);
  const at = { x: n > 0.2 && !zero ? x : ORIGIN[0] + 16, y: zero ? ORIGIN[1] - 12 : y + 5 };
  return sv("text", { class: "tag query", ...at, "text-anchor": "middle", text: "q" });
}
const keyDot = (now, i) => (cx, cy) =>
  sv("circle", { class: "dot", cx, cy, r: 7 + 10 * Math.sqrt(now.weights[i]), fill: cssColour(PLANE.values[i]) });
const queryDot = (cx, cy) =>
  sv("rect", { class: "dot", x: cx - 8, y: cy - 8, width: 16, height: 16, rx: 3, transform: `rotate(45 ${cx} ${cy})` });
const wordOf = (i) => t(`word.${PLANE.names[i]}`);
function picture(now) {
  const look = {
    viewBox: `0 0 ${SIZE} ${SIZE}`,
    id: "plane-svg",
    class: "plane-svg",
    role: "group",
    "aria-label": t("plane.picture"),
  };
  return sv(
    "svg",
    look,
    ...[-3, -2, -1, 0, 1, 2, 3].map(gridLine),
    ...evenedOut(now),
    ...now.keys.map((k) => arrow(k, "key")),
    arrow(now.q, "query"),
    ...now.keys.map((k, i) => handle(i, k, wordOf(i), keyDot(now, i))),
    handle(-1, now.q, t("plane.query"), queryDot),
    ...now.keys.map((k, i) => tag(k, wordOf(i))),
    queryTag(now.q),
  );
}

// ---- the controls and the numbers
function experimentButton(k) {
  return button(t(`plane.${k}`), () => experiment(k), {
    "data-key": `x-${k}`,
    "aria-pressed": String(sceneNow().experiment === k),
  });
}
function sharpness() {
  const bar = slider({
    id: "sharp",
    label: t("plane.sharp"),
    min: 0,
    max: 5,
    step: 0.05,
    value: state.sharp,
    show: (x) => `× ${num(x, 2)}`,
    move: (x) => set({ sharp: x }),
  });
  bar.querySelector("input").dataset.lang = state.lang;
  return bar;
}
function normSwitch() {
  const change = (e) => set({ norm: e.target.checked ? 1 : undefined });
  const box = el("input", { type: "checkbox", id: "norm", checked: state.norm === 1, onchange: change });
  return el("label", { class: "switch" }, box, el("span", { text: t("plane.norm") }));
}
export function drawPlane() {
  const now = planeNow(),
    body = $("#plane-body");
  // with little sharpness the note of an arrangement would say what the numbers do not
  const plain =
    ["start", "long", "nobody"].includes(now.experiment) && Math.max(...now.weights) < 0.7 ? "even" : now.experiment;
  const note = state.norm === 1 && now.experiment === "long" ? "plane.note.norm" : `plane.note.${plain}`;
  const tools = el("div", { class: "row" }, ...["start", "zero", "long", "nobody"].map(experimentButton));
  const sharp = body.querySelector("#sharp");
  if (sharp && sharp === document.activeElement && sharp.dataset.lang === state.lang) {
    // a slider in the hand stays in the hand
    $("#plane-svg").replaceWith(picture(now));
    $("#plane-out").replaceWith(results(now, note));
    $("#plane-tools").replaceChildren(...tools.childNodes);
    return;
  }
  tools.id = "plane-tools";
  const save = el(
    "div",
    { class: "field end" },
    saveButtons(
      () => "plane",
      () => standAlone($("#plane-svg")),
    ),
  );
  const right = el("div", { class: "plane-right" }, sharpness(), normSwitch(), results(now, note));
  keepFocus(body, () =>
    redraw(body, tools, el("div", { class: "split" }, el("div", { class: "plane-left" }, picture(now), save), right)),
  );
}
function keyRow(now, w, i) {
  const swatch = el("i", { class: "swatch", style: { background: cssColour(PLANE.values[i]) } });
  return el(
    "tr",
    { "data-row": i },
    el("th", { scope: "row" }, swatch, wordOf(i)),
    el("td", { class: "n", text: `${now.scores[i] > 0 ? "+" : ""}${num(now.scores[i], 2)}` }),
    barCell(w),
    el("td", { class: "n", text: percent(w) }),
  );
}
function mixture(now) {
  const names = t("plane.rgb").split(" "),
    style = { background: cssColour(now.colour) };
  const parts = now.colour.map((c, i) => `${names[i]} ${num(c, 3)}`).join("\u2003");
  return el(
    "div",
    { class: "mixed" },
    el("span", { class: "mixed-colour", role: "img", "aria-label": t("plane.mixed"), style }),
    el("div", {}, el("b", { text: t("plane.mixed") }), el("p", { class: "nums", text: parts })),
  );
}
function results(now, note) {
  const columns = ["plane.word", "plane.score", "plane.bar", "plane.weight"];
  const head = el(
    "tr",
    {},
    ...columns.map((k) => el("th", { scope: "col", text: t(k), class: k === "plane.bar" ? "hide" : "" })),
  );
  const sum = el("td", { class: "n", id: "plane-sum", text: percent(now.weights.reduce((a, b) => a + b, 0)) });
  const total = el("tr", { class: "total" }, el("th", { scope: "row", text: t("read.sum") }), el("td"), el("td"), sum);
  const rows = now.weights.map((w, i) => keyRow(now, w, i));
  return el(
    "div",
    { id: "plane-out" },
    el("table", { class: "bars wide" }, el("thead", {}, head), el("tbody", {}, ...rows, total)),
    mixture(now),
    el("p", { class: "callout", role: "status", id: "plane-note", text: t(note) }),
  );
}
