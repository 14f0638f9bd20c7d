// All heads at once as thumbnails, and how much better the model guesses pieces that it has already seen.
import { maxPool } from "./core.js";
import { $, el, keepFocus, num, percent, picker, rampPixel, redraw, set, state, t } from "./ui.js";
import { docs, headName, runTitle } from "./documents.js";
import { barCell, panels } from "./viewer.js";

const SORTS = ["layer", "label", "induction", "previous", "same", "start", "self", "entropy"];
const ORDER = ["induction", "previous", "same", "start", "self", "other"];
const kindOf = (head) => [head.label].flat()[0] ?? "other";
const scoreOf = (head, kind) => head.scores?.[kind]?.v ?? -1;

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
  if (by === "label")
    list.sort(
      (a, b) => ORDER.indexOf(kindOf(a)) - ORDER.indexOf(kindOf(b)) || scoreOf(b, kindOf(b)) - scoreOf(a, kindOf(a)),
    );
  else if (by !== "layer") list.sort((a, b) => scoreOf(b, by) - scoreOf(a, by));
  return list;
}
function tile(doc, l, h) {
  // an image: 48 canvases would be painted anew with every frame of the page
  doc.pools ??= new Map();
  const key = l * doc.model.n_head + h;
  if (!doc.pools.has(key)) doc.pools.set(key, maxPool(doc.weights.tiles, doc.weights.offset(l, h), doc.text.T, 64));
  const { n, out } = doc.pools.get(key),
    canvas = el("canvas", { width: n, height: n });
  const image = new ImageData(n, n),
    to = new Uint32Array(image.data.buffer);
  for (let q = 0; q < n; q++) for (let k = 0; k <= q; k++) to[q * n + k] = rampPixel(out[q * n + k]);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return el("img", { src: canvas.toDataURL(), width: n, height: n, alt: "" });
}
function thumb(doc, head) {
  const { layer: l, head: h } = head,
    kind = kindOf(head),
    own = kind === "other" ? null : head.scores[kind];
  const shown = state.sort === "layer" || state.sort === "label" ? own : head.scores?.[state.sort];
  const label = `${headName(l, h)}: ${t(`kind.${kind}`)}${own ? ` ${num(own.v, 2)}` : ""}`;
  return el(
    "button",
    {
      type: "button",
      role: "gridcell",
      class: "thumb",
      "data-l": l,
      "data-h": h,
      tabindex: "-1",
      "aria-label": label,
      title: label,
      onclick: () => panels.a.pick(l, h),
    },
    el("span", { class: "thumb-map" }, tile(doc, l, h)),
    el("span", { class: "thumb-name" }, `${l + 1}.${h + 1}`, el("b", { text: shown ? num(shown.v, 2) : "" })),
    el("span", { class: `thumb-kind ${kind}`, text: t(`kind.${kind}`) }),
  );
}
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
export function drawHeads() {
  const { doc } = panels.a,
    box = $("#heads-controls"),
    byLayer = state.sort === "layer";
  const orders = SORTS.map((k) => [k, t(`sort.${k}`)]);
  keepFocus(box, () =>
    redraw(
      box,
      picker(t("sort"), orders, state.sort, (sort) => set({ sort })),
    ),
  );
  const look = {
    class: `thumbs${byLayer ? " by-layer" : ""}`,
    role: "grid",
    "aria-label": t("heads.title"),
    style: { "--columns": doc.model.n_head },
  };
  const list = sorted(doc),
    columns = byLayer ? doc.model.n_head : 6,
    grid = el("div", look);
  for (let r = 0; r < list.length; r += columns) {
    grid.append(
      el("div", { class: "thumb-row", role: "row" }, ...list.slice(r, r + columns).map((head) => thumb(doc, head))),
    );
  }
  arrows(grid, columns);
  keepFocus($("#thumbs"), () => redraw($("#thumbs"), grid));
  markHead();
  drawSeen();
}
export function markHead() {
  for (const b of document.querySelectorAll(".thumb")) {
    const now = Number(b.dataset.l) === panels.a.layer && Number(b.dataset.h) === panels.a.head;
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
