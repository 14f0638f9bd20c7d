// Start: words, state from the address, one drawing function a widget.
import { clamp, whole } from "./core.js";
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
import { docOf, docs, ready, runs, runTitle, texts, textTitle } from "./documents.js";
import { drawViewer, finishViewer, updateViewer, viewerControls } from "./viewer.js";
import { drawHeads, markHead } from "./heads.js";
import { drawSteps } from "./steps.js";
import { drawPlane } from "./plane.js";
import { drawMask } from "./mask.js";
import { drawWindow } from "./window.js";
import { drawScale } from "./scale.js";
import { drawCards } from "./cards.js";
import { pressed } from "./keys.js";

const SECTIONS = ["viewer", "heads", "steps", "plane", "scale", "mask", "window", "quiz"];
const HELP = ["arrows", "updown", "brackets", "digits", "ends", "enter", "escape", "t", "e", "c", "l", "help"];

function restore(from) {
  // the address -> a state in which everything is in range
  const ex = texts().includes(from.ex) ? from.ex : docs[0].text.name,
    doc = docOf(ex, from.run),
    v = doc.view;
  const second = docOf(ex, from.run2),
    m = second.model;
  Object.assign(state, {
    lang: ["en", "ru"].includes(from.lang)
      ? from.lang
      : (navigator.language || "en").toLowerCase().startsWith("ru")
        ? "ru"
        : "en",
    theme: ["light", "dark"].includes(from.theme) ? from.theme : undefined,
    ex,
    run: doc.model.name,
    run2:
      runs(ex).length > 1
        ? runs(ex).includes(from.run2)
          ? from.run2
          : runs(ex).find((r) => r !== doc.model.name)
        : undefined,
    l: whole(from.l, 1, doc.model.n_layer, v.layer + 1) - 1,
    h: whole(from.h, 1, doc.model.n_head, v.head + 1) - 1,
    t: whole(from.t, 0, doc.text.T - 1, v.token),
    cmp: from.cmp === "1" ? 1 : undefined,
    l2: whole(from.l2, 1, m.n_layer, 1) - 1,
    h2: whole(from.h2, 1, m.n_head, 1) - 1,
    under: ["weight", "p", "rank", "loss", "seen"].includes(from.under) ? from.under : "weight",
    sort: ["layer", "label", "induction", "previous", "same", "start", "self", "entropy"].includes(from.sort)
      ? from.sort
      : "layer",
    pin: from.pin === "0" ? 0 : undefined,
    sharp: clamp(Number(from.sharp ?? 1) || 0, 0, 5),
    norm: from.norm === "1" ? 1 : undefined,
    d: Number(from.d) || 64,
    T: whole(from.T, 2, 512, 512),
    W: whole(from.W, 1, 512, 8),
    wt: from.wt === undefined ? undefined : whole(from.wt, 0, 46, undefined),
  });
}

function facts() {
  const doc = docOf(state.ex, state.run),
    m = doc.model,
    s = doc.losses,
    fact = (k, v) => el("div", {}, el("dt", { text: t(k) }), el("dd", {}, el("bdi", { text: v })));
  const known = s ? s.nll.filter((x) => x !== null) : [],
    loss = known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  redraw(
    $("#facts"),
    fact("fact.model", runTitle(m.name)),
    fact("fact.heads", t("fact.heads.value", { l: m.n_layer, h: m.n_head, n: m.n_layer * m.n_head })),
    m.parameters ? fact("fact.parameters", num(m.parameters, 0)) : null,
    fact("fact.text", textTitle(state.ex)),
    fact("fact.tokens", num(doc.text.T, 0)),
    loss !== null ? fact("fact.loss", t("nats", { x: num(loss, 2) })) : null,
  );
  $("#demo-note").hidden = m.kind !== "rule";
}
function chrome() {
  translatePage();
  for (const b of document.querySelectorAll("#langs button"))
    b.setAttribute("aria-pressed", String(b.dataset.lang === state.lang));
  redraw(
    $("#nav"),
    ...SECTIONS.map((id) =>
      el("a", {
        href: `#${id}`,
        text: t(`nav.${id}`),
        onclick: (e) => {
          e.preventDefault(); // the part after # keeps the state, so the page scrolls by itself
          const h = $(`#${id}-h`);
          h.tabIndex = -1;
          h.focus({ preventScroll: true });
          $(`#${id}`).scrollIntoView({
            behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
          });
        },
      }),
    ),
  );
  redraw(
    $("#keys-list"),
    ...HELP.flatMap((k) => [el("dt", {}, el("kbd", { text: t(`key.${k}`) })), el("dd", { text: t(`key.${k}.what`) })]),
  );
}
function theme() {
  const root = document.documentElement;
  if (state.theme) root.dataset.theme = state.theme;
  else delete root.dataset.theme;
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  $("#theme").textContent = dark ? "☀" : "☾";
  readColours();
}
function below() {
  drawHeads();
  drawSteps();
}
function still() {
  drawPlane();
  drawMask();
  drawWindow();
  drawCards();
  setTimeout(drawScale, 0);
}

let turn = 0;
async function load() {
  // another text, run or number of panels: decode, then draw
  const mine = ++turn,
    wanted = [docOf(state.ex, state.run), ...(state.cmp === 1 ? [docOf(state.ex, state.run2)] : [])];
  $("#loading").hidden = false;
  try {
    await Promise.all(wanted.map(ready));
  } catch (e) {
    $("#loading").textContent = t(typeof DecompressionStream === "undefined" ? "old.browser" : "broken");
    console.error(e);
    return;
  }
  if (mine !== turn) return;
  $("#loading").hidden = true;
  facts();
  drawViewer();
  document.documentElement.dataset.ready = "1";
  setTimeout(() => {
    if (mine === turn) below();
  }, 0);
}

let soon = () => {};
watch((patch) => {
  const has = (...names) => names.some((n) => n in patch);
  if (has("lang", "theme")) {
    theme();
    chrome();
    load();
    still();
    return;
  }
  if (has("ex")) {
    const doc = docOf(state.ex, state.run),
      v = doc.view;
    Object.assign(state, { run: doc.model.name, t: v.token, l: v.layer, h: v.head });
    if (!runs().includes(state.run2)) state.run2 = runs().find((r) => r !== state.run);
  }
  if (has("ex", "run", "run2", "cmp")) {
    if (has("cmp") && state.cmp === 1 && !has("run2")) beside();
    load();
    return;
  }
  if (has("l", "h", "l2", "h2", "t", "under")) {
    if (has("under")) viewerControls();
    updateViewer();
    markHead();
    soon(); // tokens out of sight and the step cards follow after the click is painted
    soon = later(() => {
      finishViewer();
      drawSteps();
    });
  }
  if (has("sort")) drawHeads();
  if (has("sharp", "norm")) drawPlane();
  if (has("d")) drawScale();
  if (has("T")) drawMask();
  if (has("W", "wt")) drawWindow();
});
function beside() {
  // the second panel opens on something else than the first
  if (runs().length > 1 && state.run2 !== state.run) return;
  const { model } = docOf(state.ex, state.run2);
  if (state.l2 === state.l && state.h2 === state.h) state.h2 = (state.h + 1) % model.n_head;
}

function boot() {
  setStrings(JSON.parse($("#strings").textContent));
  for (const node of document.querySelectorAll("script.document")) {
    docs.push(JSON.parse(node.textContent));
    node.remove();
  }
  restore(fromAddress());
  theme();
  chrome();
  facts();
  load();
  still();
  for (const b of document.querySelectorAll("#langs button"))
    b.addEventListener("click", () => set({ lang: b.dataset.lang }));
  $("#theme").addEventListener("click", () => {
    const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    set({ theme: dark ? "light" : "dark" });
  });
  $("#help").addEventListener("click", () => $("#keys").showModal());
  $("#keys-close").addEventListener("click", () => $("#keys").close());
  $("#skip").addEventListener("click", (e) => {
    e.preventDefault();
    $("#main").focus();
  });
  addEventListener("keydown", pressed);
  addEventListener("hashchange", () => {
    const from = fromAddress();
    if (Object.keys(from).length) {
      restore(from);
      theme();
      chrome();
      load();
      still();
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    theme();
    load();
    still();
  });
  // Paper is white: print in the light colours whatever the screen shows.
  let screen = null;
  addEventListener("beforeprint", () => {
    screen = state.theme ?? "";
    state.theme = "light";
    theme();
    drawViewer();
    drawHeads();
  });
  addEventListener("afterprint", () => {
    state.theme = screen || undefined;
    theme();
    drawViewer();
    drawHeads();
  });
}
boot();
