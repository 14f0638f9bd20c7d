// The picture of rollout.js: layers from bottom to top, a column for each token that something flows from.
import { ask, live } from "./live.js";
import { $, el, percent, redraw, saveButtons, set, standAlone, sv, t } from "./ui.js";
import { maps, quoted } from "./documents.js";
import { front } from "./viewer.js";

const DRAWN = 0.01, // paths below are not drawn
  LAYER = 34,
  WIDE = 1040, // of the picture, where the columns find room
  MARGIN = { left: 70, top: 20, bottom: 46 };
let nearFlow = false; // the section is in sight: it is computed only then, for it takes long
export function watchFlow() {
  const look = ([{ isIntersecting }]) => {
    nearFlow = isIntersecting;
    if (nearFlow && front()?.doc.weights) drawFlow();
  };
  new IntersectionObserver(look, { rootMargin: "200px" }).observe($("#way"));
}
let drawnFlow = ""; // the document and token that are drawn

function flowPicture(doc, token, found) {
  const L = doc.model.n_layer,
    edges = found.edges.filter(([, , , share]) => share >= DRAWN),
    tokens = [...new Set([token, ...edges.map(([, s]) => s)])].sort((a, b) => a - b),
    column = Math.max(38, Math.min(62, (WIDE - MARGIN.left) / tokens.length));
  const x = (j) => MARGIN.left + (tokens.indexOf(j) + 0.5) * column,
    y = (layer) => MARGIN.top + (L - layer) * LAYER,
    width = MARGIN.left + tokens.length * column,
    height = MARGIN.top + L * LAYER + MARGIN.bottom;
  const line = ([l, s, q, share]) => {
    const [x1, y1, x2, y2] = [x(s), y(l), x(q), y(l + 1)],
      middle = (y1 + y2) / 2,
      words = t("flow.edge", { k: quoted(doc, s), q: quoted(doc, q), l: l + 1, p: percent(share, 1) });
    const look = {
      class: s === q ? "flow stays" : "flow",
      d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`,
      "stroke-width": (1 + 13 * share).toFixed(2),
    };
    return sv("path", look, sv("title", { text: words }));
  };
  const layerName = (_, l) =>
    sv("text", { class: "tick", x: 4, y: y(l) + 4, text: l ? t("way.after", { l }) : t("way.embed") });
  const label = (j) => {
    const more = { class: "flow-token", x: x(j), y: y(0) + 24, "text-anchor": "middle", "data-t": j };
    return sv("text", { ...more, text: quoted(doc, j).slice(0, Math.floor(column / 8)) });
  };
  return sv(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": t("flow.title", { q: quoted(doc, token) }),
    },
    ...Array.from({ length: L + 1 }, layerName),
    ...edges.map(line),
    ...tokens.map(label),
  );
}
function sourcesTable(doc, { sources }) {
  const list = sources.map((share, j) => [j, share]).sort((a, b) => b[1] - a[1]).slice(0, 8); // prettier-ignore
  const item = ([j, share]) =>
    el("li", { "data-key": j }, el("bdi", { class: "chip", text: quoted(doc, j) }), ` ${percent(share, 1)}`);
  return el("ol", { class: "tops", id: "flow-sources" }, ...list.map(item));
}
export async function drawFlow() {
  const { doc, token } = front(),
    box = $("#flow");
  if (!live.on || !nearFlow || !maps(doc)) return;
  const key = `${doc.key} ${token}`;
  if (drawnFlow === `${key} ${document.documentElement.lang}`) return;
  drawnFlow = `${key} ${document.documentElement.lang}`;
  const found = await ask("flow", { run: doc.run, t: token });
  if (!found || !drawnFlow.startsWith(key)) return;
  const picture = flowPicture(doc, token, found),
    shown = found.sources.reduce((a, b) => a + b, 0),
    name = () => `flow-${token}`;
  picture.addEventListener("click", (e) => {
    if (e.target.dataset?.t) set({ t: Number(e.target.dataset.t), also: undefined });
  });
  redraw(
    box,
    el("div", { class: "row flow-head" }, el("h3", { text: t("flow.title", { q: quoted(doc, token) }) }), saveButtons(name, () => standAlone(picture))), // prettier-ignore
    el("p", { class: "small", text: t("flow.text", { p: percent(shown, 0) }) }),
    el("div", { class: "scroller table", tabindex: "0", role: "group", "aria-label": t("flow.title", { q: quoted(doc, token) }) }, picture), // prettier-ignore
    el("p", { class: "small", text: t("flow.sources") }),
    sourcesTable(doc, found),
  );
  picture.parentNode.scrollLeft = picture.parentNode.scrollWidth; // the chosen token is at the right
}
