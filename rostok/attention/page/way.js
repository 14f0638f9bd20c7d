// The way of a guess, in a live page: the guess after every layer (logit lens), and what embedding, heads and MLPs add to the
// logit of one token less that of its rival. The parts sum to the difference of the two logits; the sum is shown.

import { ask, live } from "./live.js";
import { $, el, num, redraw, t } from "./ui.js";
import { maps, quoted } from "./documents.js";
import { front } from "./viewer.js";
import { chance, named } from "./next.js";

let drawnWay = ""; // the document and token that are drawn
const signed = (x, digits = 2) => `${x > 0 ? "+" : ""}${num(x, digits)}`;

function lensTable({ lens, chosen }) {
  const row = ({ top, p }, layer) =>
    el(
      "tr",
      { "data-layer": layer },
      el("th", { scope: "row", text: layer ? t("way.after", { l: layer }) : t("way.embed") }),
      el(
        "td",
        {},
        ...top
          .slice(0, 3)
          .flatMap(([piece, q]) => [el("bdi", { class: "chip", text: named(piece) }), ` ${chance(q)} `]),
      ),
      el("td", { class: "n", text: chance(p) }),
    );
  const head = el(
    "tr",
    {},
    ...[t("way.layer"), t("way.guess"), t("way.of", { q: named(chosen[1]) })].map((text) =>
      el("th", { scope: "col", text }),
    ),
  );
  return el(
    "div",
    { class: "scroller table", tabindex: "0", role: "group", "aria-label": t("way.lens") },
    el("table", { class: "plain lens" }, el("thead", {}, head), el("tbody", {}, ...lens.map(row))),
  );
}
const partName = ({ part, layer, head }) =>
  part === "embed"
    ? t("way.part.embed")
    : part === "mlp"
      ? t("way.part.mlp", { l: layer + 1 })
      : `${layer + 1}.${head + 1}`;
function partsTable(found) {
  const list = found.parts.map((part) => ({ ...part, diff: part.own - part.rival })),
    total = list.reduce((a, x) => a + x.diff, 0);
  const order = [...list].sort((a, b) => Math.abs(b.diff) - Math.abs(a.diff)),
    top = order.slice(0, 12),
    rest = order.slice(12).reduce((a, x) => a + x.diff, 0);
  const high = Math.max(1e-9, ...top.map((x) => Math.abs(x.diff)), Math.abs(rest));
  const row = (name, x, id) =>
    el(
      "tr",
      { "data-part": id },
      el("th", { scope: "row", text: name }),
      el(
        "td",
        { class: "signed" },
        el(
          "div",
          {},
          el("span", { class: x < 0 ? "minus" : "plus", style: { width: `${(50 * Math.abs(x)) / high}%` } }),
        ),
      ),
      el("td", { class: "n", text: signed(x) }),
    );
  const rows = [
    ...top.map((x) => row(partName(x), x.diff, partName(x))),
    row(t("way.rest", { n: order.length - top.length }), rest, "rest"),
  ];
  const sum = {
    sum: signed(total, 4),
    own: num(found.own, 4),
    rival: num(found.rival, 4),
    diff: signed(found.own - found.rival, 4),
  };
  return [
    el("table", { class: "bars wide parts" }, el("tbody", {}, ...rows)),
    el("p", {
      class: "small check",
      id: "way-sum",
      "data-off": Math.abs(total - (found.own - found.rival)),
      text: t("way.sum", sum),
    }),
  ];
}
export async function drawWay() {
  const body = $("#way-body"),
    panel = front(),
    { doc, token } = panel;
  $("#way").hidden = !live.on || !maps(doc);
  if ($("#way").hidden) return;
  const T = doc.text.T,
    key = `${doc.key} ${token}`,
    id = token + 1 < T ? doc.text.ids[token + 1] : undefined;
  drawnWay = key;
  const found = await ask("parts", { run: doc.run, t: token, id });
  if (drawnWay !== key) return;
  const vars = { q: quoted(doc, token), a: named(found.chosen[1]), b: named(found.other[1]) };
  redraw(
    body,
    el(
      "div",
      { class: "two" },
      el(
        "div",
        { class: "card" },
        el("h3", { text: t("way.lens", vars) }),
        el("p", { class: "small", text: t("way.lens.text") }),
        lensTable(found),
      ),
      el(
        "div",
        { class: "card" },
        el("h3", { text: t("way.parts", vars) }),
        el("p", { class: "small", text: t("way.parts.text", vars) }),
        ...partsTable(found),
      ),
    ),
  );
}
