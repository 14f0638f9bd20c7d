// All heads at once as thumbnails, and how much better the model guesses pieces that it has already seen.
import { maxPool } from "./core.js";
import {
  $,
  barCell,
  el,
  keepFocus,
  num,
  percent,
  picker,
  rampPixel,
  redraw,
  saveButtons,
  set,
  state,
  t,
} from "./ui.js";
import { live } from "./live.js";
import { docs, headName, maps, quoted, runTitle } from "./documents.js";
import { headsSheet } from "./figure.js";
import { front } from "./viewer.js";
import { isOff, matterNow, toggleHead } from "./change.js";

const SORTS = ["layer", "label", "induction", "previous", "same", "start", "self", "entropy"];
const ORDER = ["induction", "previous", "same", "start", "self", "other"];
const kindOf = (head) => [head.label].flat()[0] ?? "other";
const scoreOf = (head, kind) => head.scores?.[kind]?.v ?? -1;

const byKind = (a, b) =>
  ORDER.indexOf(kindOf(a)) - ORDER.indexOf(kindOf(b)) || scoreOf(b, kindOf(b)) - scoreOf(a, kindOf(a));
// The head that tells most: the surest of the first kind there is. A second panel opens on it.
export const tellingHead = (doc) => [...(doc.heads ?? [])].sort(byKind)[0];
function sorted(doc) {
  const list = doc.heads?.length
    ? [...doc.heads]
    : Array.from({ length: doc.model.n_layer * doc.model.n_head }, (_, i) => ({
        layer: Math.floor(i / doc.model.n_head),
        head: i % doc.model.n_head,
        label: "other",
        scores: {},
      }));
  const by = state.sort;
  if (by === "label") list.sort(byKind);
  else if (by !== "layer") list.sort((a, b) => scoreOf(b, by) - scoreOf(a, by));
  return list;
}
function paintTile(canvas, { n, out }) {
  // n x n cells, the largest weight in each: a line one token wide survives
  const image = new ImageData(n, n),
    to = new Uint32Array(image.data.buffer);
  for (let q = 0; q < n; q++) for (let k = 0; k <= q; k++) to[q * n + k] = rampPixel(out[q * n + k]);
  if (canvas.width !== n) canvas.width = canvas.height = n;
  canvas.getContext("2d").putImageData(image, 0, 0);
}
const kindsText = (head) => {
  const kind = kindOf(head),
    own = kind === "other" ? null : head.scores[kind];
  return { kind, own, words: `${t(`kind.${kind}`)}${own ? ` ${num(own.v, 2)}` : ""}` };
};
function thumb(head) {
  const { layer: l, head: h } = head,
    canvas = el("canvas", { width: 1, height: 1 });
  const choose = () => front().pick(l, h),
    cut = () => live.on && toggleHead(l, h);
  const look = {
    type: "button",
    role: "gridcell",
    class: "thumb",
    "data-l": l,
    "data-h": h,
    tabindex: "-1",
    onclick: choose,
    ondblclick: cut,
  };
  return el(
    "button",
    look,
    el("span", { class: "thumb-map" }, canvas),
    el("span", { class: "thumb-name" }, `${l + 1}.${h + 1} `, el("b")),
    " ",
    el("span", { class: "thumb-kind" }),
  );
}
// What changes with the text: the map, the kind and its score, what is switched off, how much the head matters.
function dressThumb(node, doc, head, found) {
  const { kind, own } = kindsText(head),
    [, name, what] = node.children;
  const shown = state.sort === "layer" || state.sort === "label" ? own : head.scores?.[state.sort];
  const at = head.layer * doc.model.n_head + head.head,
    effect = found?.list[at],
    off = live.on && isOff(head.layer, head.head);
  paintTile(node.firstChild.firstChild, doc.weights.pool(head.layer, head.head));
  const score = shown ? num(shown.v, 2) : "",
    words = off ? t("change.is.off") : t(`kind.${kind}.short`),
    moved = effect === undefined ? "" : t("matter.thumb", { x: num(effect, 2) }),
    now = [score, words, kind, off, moved].join();
  if (node.dressed === now) return;
  node.dressed = now;
  name.lastChild.textContent = score;
  what.className = `thumb-kind ${kind}`;
  what.textContent = words;
  node.classList.toggle("off", off);
  const strength = effect === undefined ? 0 : Math.min(1, Math.sqrt(Math.abs(effect) / 2));
  node.style.setProperty("--effect", strength.toFixed(3));
  node.dataset.effect = effect === undefined ? "" : effect > 0 ? "up" : "down";
  const label = [`${head.layer + 1}.${head.head + 1}`, score, words].filter(Boolean).join(" ");
  node.title = moved ? `${label}, ${moved}` : label;
  node.setAttribute("aria-label", node.title);
}
export function paintThumbs() {
  const { doc } = front(),
    found = matterNow(),
    of = new Map(doc.heads.map((head) => [`${head.layer}.${head.head}`, head]));
  for (const node of document.querySelectorAll(".thumb")) {
    const key = `${node.dataset.l}.${node.dataset.h}`;
    dressThumb(
      node,
      doc,
      of.get(key) ?? { layer: Number(node.dataset.l), head: Number(node.dataset.h), label: "other", scores: {} },
      found,
    );
  }
  markHead();
}
live.painted = paintThumbs;
function arrows(grid, columns) {
  // one stop for Tab; inside, the arrows move on
  grid.addEventListener("keydown", (e) => {
    const all = [...grid.querySelectorAll(".thumb")],
      at = all.indexOf(document.activeElement);
    const to = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      ArrowDown: at + columns,
      ArrowUp: at - columns,
      Home: 0,
      End: all.length - 1,
    }[e.key];
    if (at < 0 || to === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    if (!all[to]) return;
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  });
}
let built = ""; // the order and the model for which the grid stands
export function drawHeads() {
  const { doc } = front(),
    box = $("#heads-controls"),
    byLayer = state.sort === "layer",
    list = sorted(doc);
  const orders = SORTS.map((k) => [k, t(`sort.${k}`)]);
  const sheet = el(
    "div",
    { class: "field end" },
    saveButtons(
      () => `heads-${state.ex}`,
      () => headsSheet(front()),
    ),
  );
  keepFocus(box, () =>
    redraw(
      box,
      picker(t("sort"), orders, state.sort, (sort) => set({ sort })),
      maps(doc) ? sheet : null,
    ),
  );
  const now = [state.lang, doc.model.name, state.sort, ...list.map(({ layer, head }) => `${layer}.${head}`)].join();
  if (now !== built) buildGrid(doc, list, byLayer);
  built = now;
  paintThumbs();
  drawSeen();
}
function buildGrid(doc, list, byLayer) {
  const perLayer = doc.model.n_head || 1,
    columns = byLayer && perLayer > 6 ? perLayer : Math.max(perLayer, Math.floor(12 / perLayer) * perLayer);
  const look = {
      class: "thumbs",
      role: "grid",
      "aria-label": t("heads.title"),
      style: { "--columns": Math.min(columns, list.length || 1) },
    },
    grid = el("div", look);
  for (let r = 0; r < list.length; r += columns)
    grid.append(el("div", { class: "thumb-row", role: "row" }, ...list.slice(r, r + columns).map(thumb)));
  arrows(grid, columns);
  keepFocus($("#thumbs"), () =>
    redraw($("#thumbs"), list.length ? grid : el("p", { class: "small", text: t("heads.none") })),
  );
}
// The chosen head large, beside the thumbnails, with the strongest pairs of the chosen token.
function drawLarge() {
  const panel = front(),
    { doc } = panel,
    box = $("#large");
  box.hidden = !maps(doc);
  if (box.hidden) return;
  const head = doc.heads.find((x) => x.layer === panel.layer && x.head === panel.head) ?? {
    label: "other",
    scores: {},
  };
  const canvas = box.querySelector("canvas") ?? el("canvas", { class: "map", role: "img" });
  const tops = panel.tops(4).map(([j, w]) => el("li", {}, el("bdi", { text: quoted(doc, j) }), ` ${num(w, 2)}`));
  canvas.setAttribute("aria-label", headName(panel.layer, panel.head));
  paintTile(canvas, maxPool(doc.weights.tile(panel.layer, panel.head), doc.text.T, 512));
  canvas.onclick = (e) => {
    const { top, height } = canvas.getBoundingClientRect();
    set({ t: Math.floor(((e.clientY - top) / height) * doc.text.T) });
  };
  redraw(
    box,
    el("h3", { text: `${headName(panel.layer, panel.head)}: ${kindsText(head).words}` }),
    canvas,
    el("p", { class: "small", text: t("keys.title", { q: quoted(doc, panel.token) }) }),
    el("ol", { class: "tops" }, ...tops),
  );
}
export function markHead() {
  drawLarge();
  for (const b of document.querySelectorAll(".thumb")) {
    const now = Number(b.dataset.l) === front().layer && Number(b.dataset.h) === front().head;
    if (b.getAttribute("aria-selected") !== String(now)) b.setAttribute("aria-selected", String(now));
    if (!document.activeElement?.classList.contains("thumb") || document.activeElement === b) b.tabIndex = now ? 0 : -1;
  }
}
function seenRow(d, kind) {
  const { n, p, loss } = d.losses.summary[kind];
  return el(
    "tr",
    { "data-class": kind, "data-run": d.model.name },
    el("th", { scope: "row", text: t(`class.${kind}.long`) }),
    el("td", { class: "n", text: num(n, 0) }),
    barCell(p ?? 0),
    el("td", { class: "n", text: n ? percent(p) : "–" }),
    el("td", { class: "n", text: n ? num(loss, 2) : "–" }),
  );
}
function drawSeen() {
  const here = docs.filter((d) => d.text.name === state.ex && d.losses);
  if (!here.length) return redraw($("#seen"), el("p", { class: "small", text: t("seen.none") }));
  const group = (d) =>
    el("tr", { class: "group" }, el("th", { colspan: 5, scope: "colgroup", text: runTitle(d.model.name) }));
  const rows = here.flatMap((d) => [
    ...(here.length > 1 ? [group(d)] : []),
    ...["new", "seen", "pair"].map((kind) => seenRow(d, kind)),
  ]);
  const columns = ["seen.class", "seen.n", "seen.bar", "seen.p", "seen.loss"];
  const head = el(
    "tr",
    {},
    ...columns.map((k) => el("th", { scope: "col", text: t(k), class: k === "seen.bar" ? "hide" : "" })),
  );
  const table = el("table", { class: "bars wide" }, el("thead", {}, head), el("tbody", {}, ...rows));
  return redraw(
    $("#seen"),
    el("h3", { text: t("seen.title") }),
    el("p", { class: "small", text: t("seen.intro") }),
    el("div", { class: "scroller table" }, table),
  );
}
