// Start: words, state from the address, one drawing function a widget, and what is drawn again when the state changes.
import { clamp } from "./core.js";
import {
  $,
  el,
  fromAddress,
  later,
  num,
  readColours,
  redraw,
  set,
  setStrings,
  state,
  t,
  translatePage,
  watch,
} from "./ui.js";
import { collect, docOf, ready, runs, runTitle, textTitle, viewOf } from "./documents.js";
import { kinds, live } from "./live.js";
import { drawViewer, finishViewer, panels, updateViewer, viewerControls } from "./viewer.js";
import { drawHeads, markHead, paintThumbs, tellingHead } from "./heads.js";
import { drawSteps } from "./steps.js";
import { drawChange } from "./change.js";
import { drawWay } from "./way.js";
import { drawFlow, watchFlow } from "./flow.js";
import { drawWrite, showText, stopWriting } from "./write.js";
import { drawPlane } from "./plane.js";
import { drawMask } from "./mask.js";
import { drawWindow } from "./window.js";
import { drawScale } from "./scale.js";
import { drawCards } from "./cards.js";
import { drawFocus } from "./focus.js";
import { pressed } from "./keys.js";
import { restore } from "./address.js";

const SECTIONS = ["viewer", "heads", "way", "steps", "plane", "scale", "mask", "window", "quiz"];
const HELP = ["arrows", "updown", "brackets", "digits", "ends", "enter", "escape", "t", "e", "c", "l", "help"];

function facts() {
  const doc = docOf(state.ex, state.run),
    m = doc.model,
    fact = (k, v) => el("div", {}, el("dt", { text: t(k) }), el("dd", {}, el("bdi", { text: v })));
  const known = (doc.losses?.nll ?? []).filter((x) => x !== null),
    loss = known.reduce((a, b) => a + b, 0) / known.length;
  const heads = m.n_layer
    ? t("fact.heads.value", { l: m.n_layer, h: m.n_head, n: m.n_layer * m.n_head })
    : t("fact.window.value", { w: m.window });
  redraw(
    $("#facts"),
    fact("fact.model", runTitle(m.name)),
    fact("fact.heads", heads),
    m.parameters ? fact("fact.parameters", num(m.parameters, 0)) : null,
    fact("fact.text", textTitle(state.ex)),
    fact("fact.tokens", num(doc.text.T, 0)),
    known.length ? fact("fact.loss", t("nats", { x: num(loss, 2) })) : null,
    doc.text.dropped ? fact("fact.dropped", t("fact.dropped.value", { n: num(doc.text.dropped, 0) })) : null,
  );
  $("#demo-note").hidden = m.kind !== "rule";
  notes(doc);
}
function notes(doc) {
  // where the tokenizer spells the text letter by letter, the page says so
  const words =
      doc.text.pieces
        .slice(1)
        .join("")
        .match(/[\p{L}\p{N}]+/gu)?.length ?? 0,
    partial = (doc.text.partial ?? []).filter(Boolean).length;
  const many = doc.text.pieces.length > 8 && (partial > doc.text.T / 4 || doc.text.T / Math.max(1, words) > 4);
  $("#spelling").hidden = !many;
  if (many)
    $("#spelling").textContent = t("spelling.note", {
      n: num(doc.text.T, 0),
      part: num((100 * partial) / doc.text.T, 0),
    });
}
function goTo(id) {
  const h = $(`#${id}-h`);
  if (!h) return;
  h.tabIndex = -1;
  h.focus({ preventScroll: true });
  $(`#${id}`).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}
function navLink(id) {
  const go = (e) => {
    e.preventDefault(); // the part after # keeps the state, so the page scrolls by itself
    set({ sec: id });
    goTo(id);
  };
  return el("a", { href: `#${id}`, text: t(`nav.${id}`), onclick: go });
}
function chrome() {
  translatePage();
  for (const b of document.querySelectorAll("#langs button"))
    b.setAttribute("aria-pressed", String(b.dataset.lang === state.lang));
  redraw($("#nav"), ...SECTIONS.filter((id) => id !== "way" || live.on).map(navLink));
  redraw(
    $("#keys-list"),
    ...HELP.flatMap((k) => [el("dt", {}, el("kbd", { text: t(`key.${k}`) })), el("dd", { text: t(`key.${k}.what`) })]),
  );
  document.documentElement.dataset.big = state.big ?? "";
  $("#big").setAttribute("aria-pressed", String(state.big === 1));
  $("#keys-on").checked = state.keys !== 0;
}
const isDark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
function theme() {
  const root = document.documentElement;
  if (state.theme) root.dataset.theme = state.theme;
  else delete root.dataset.theme;
  $("#theme").textContent = isDark() ? "☀" : "☾";
  readColours();
}
async function below() {
  // a long text is drawn in several short tasks; another text ends it
  const mine = turn,
    parts = [drawHeads, drawChange, drawWay, drawSteps, drawFlow];
  for (const panel of state.cmp === 1 ? [panels.a, panels.b] : [panels.a]) {
    const { doc } = panel;
    if (doc.live && !doc.kinds && (await kinds(doc)) && doc === panel.doc) panel.controls();
  }
  if (seek) tell();
  for (const part of parts) {
    if (mine !== turn) return;
    part();
    await breath();
  }
}
const breath = () => new Promise((go) => later(go));
let seek = false; // the second panel has a new run: it opens on the head that tells most
function tell() {
  seek = false;
  const head = state.run2 && state.run2 !== state.run && tellingHead(docOf(state.ex, state.run2));
  if (head && (head.layer !== state.l2 || head.head !== state.h2)) set({ l2: head.layer, h2: head.head });
}
function still() {
  drawPlane();
  drawMask();
  drawWindow();
  drawCards();
  setTimeout(drawScale, 0);
}

// ---- another text, run or number of panels: decode or compute, then draw
let turn = 0,
  busy = false,
  again = false;
const wanted = () => [docOf(state.ex, state.run), ...(state.cmp === 1 ? [docOf(state.ex, state.run2)] : [])];
async function load() {
  const mine = ++turn;
  $("#loading").hidden = false;
  try {
    await live.opened;
    await Promise.all(wanted().map(ready));
  } catch (e) {
    $("#loading").textContent = t(typeof DecompressionStream === "undefined" ? "old.browser" : "broken");
    console.error(e);
    return;
  }
  if (mine !== turn) return;
  $("#loading").hidden = true;
  showNew();
  document.documentElement.dataset.ready = "1";
  setTimeout(() => {
    if (mine === turn) below();
  }, 0);
}
function showNew() {
  if (!again) state.t = clamp(state.t, 0, docOf(state.ex, state.run).text.T - 1); // else a longer text is on its way
  facts();
  drawViewer();
  drawFocus();
}
async function follow() {
  // a key press: the newest text is read as soon as the one before it is shown
  again = busy;
  if (busy) return;
  busy = true;
  try {
    await Promise.all(wanted().map(ready));
    showNew();
    if (panels.a.doc.text.T > 200) await new Promise((go) => setTimeout(go, 0));
    paintThumbs();
  } finally {
    busy = false;
  }
  document.documentElement.dataset.read = String(Number(document.documentElement.dataset.read ?? 0) + 1);
  if (again) return follow();
  soon();
  soon = later(below);
}

let soon = () => {};
function newText() {
  // an example was chosen: its own view
  stopWriting();
  const doc = docOf(state.ex, state.run),
    v = viewOf(doc);
  Object.assign(state, {
    also: undefined,
    run: doc.model.name,
    t: v.token,
    l: v.layer,
    h: v.head,
    text: state.ex === "own" ? state.text : undefined,
  });
  if (!runs().includes(state.run2)) state.run2 = runs().find((r) => r !== state.run);
  showText();
}
function changed(patch, has) {
  if (has("text", "off", "mlp", "cut")) return follow();
  if (has("ex")) newText();
  if (has("ex", "run", "run2", "cmp")) {
    if (has("cmp") && state.cmp === 1 && !has("run2")) beside();
    if (has("run2", "cmp")) seek = state.cmp === 1;
    return load();
  }
  if (has("of")) {
    drawFocus();
    return below();
  }
  if (has("l", "h", "l2", "h2", "t", "under", "also", "hide", "pin")) {
    if (has("under", "hide")) viewerControls();
    updateViewer();
    markHead();
    drawFocus();
    soon(); // tokens out of sight and the step cards follow after the click is painted
    soon = later(() => {
      finishViewer();
      drawChange();
      drawWay();
      drawSteps();
      drawFlow();
    });
  }
}
watch((patch) => {
  const has = (...names) => names.some((n) => n in patch);
  if (has("lang", "theme", "big")) {
    theme();
    chrome();
    drawWrite();
    load();
    still();
    return;
  }
  changed(patch, has);
  if (has("sort")) drawHeads();
  if (has("sharp", "norm", "plane")) drawPlane();
  if (has("d")) drawScale();
  if (has("T", "mask")) drawMask();
  if (has("quiz")) drawCards();
  if (has("W", "wt")) drawWindow();
});
function beside() {
  // the second panel opens on something else than the first
  if (runs().length > 1 && state.run2 !== state.run) return;
  const { model } = docOf(state.ex, state.run2);
  if (state.l2 === state.l && state.h2 === state.h) state.h2 = (state.h + 1) % model.n_head;
}

// ---- what is listened to once
function buttons() {
  for (const b of document.querySelectorAll("#langs button"))
    b.addEventListener("click", () => set({ lang: b.dataset.lang }));
  $("#theme").addEventListener("click", () => set({ theme: isDark() ? "light" : "dark" }));
  $("#big").addEventListener("click", () => set({ big: state.big === 1 ? undefined : 1 }));
  $("#help").addEventListener("click", () => $("#keys").showModal());
  $("#keys-close").addEventListener("click", () => $("#keys").close());
  $("#keys-on").addEventListener("change", (e) => set({ keys: e.target.checked ? undefined : 0 }));
  $("#skip").addEventListener("click", (e) => {
    e.preventDefault();
    $("#main").focus();
  });
}
function drawAll() {
  theme();
  chrome();
  drawWrite();
  load();
  still();
}
function print() {
  // paper is white: print in the light colours whatever the screen shows
  let screen = null;
  const draw = () => {
    theme();
    drawViewer();
    paintThumbs();
  };
  addEventListener("beforeprint", () => {
    screen = state.theme ?? "";
    state.theme = "light";
    draw();
  });
  addEventListener("afterprint", () => {
    state.theme = screen || undefined;
    draw();
  });
}
function boot() {
  setStrings(JSON.parse($("#strings").textContent));
  const from = fromAddress();
  state.plain = from.plain;
  collect();
  restore(from);
  seek = state.cmp === 1 && from.l2 === undefined && from.h2 === undefined;
  facts();
  drawAll();
  buttons();
  print();
  watchFlow();
  if (state.sec) later(() => goTo(state.sec));
  addEventListener("keydown", pressed);
  addEventListener("hashchange", () => {
    const now = fromAddress();
    if (!Object.keys(now).length) return;
    restore(now);
    drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => set({ theme: state.theme }));
}
boot();
