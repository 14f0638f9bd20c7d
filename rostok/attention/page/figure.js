// The view of one head as a figure of its own, an SVG that needs no style sheet.
import { arc, escapeXml, spaced } from "./core.js";
import { css, el, num, rampCss, rampInk, shade, t } from "./ui.js";
import { headName, quoted, runTitle } from "./documents.js";

const WIDTH = 960,
  LINE = 46,
  LETTER = 15,
  EDGE = 24,
  SIDE = 420;
const textAt = (x, y, size, fill, words, more = "") =>
  `<text x="${x}" y="${y}" font-size="${size}" fill="${fill}"${more}>${escapeXml(words)}</text>`;

function placesOf(doc) {
  // where each token goes, in lines of the figure's width
  const out = [];
  let x = EDGE,
    y = 104;
  doc.shown.forEach((shown, j) => {
    const w = Math.max(16, [...shown].length * LETTER * 0.61 + 8);
    if (spaced(doc.text.pieces[j])) x += 5;
    if (x + w > WIDTH - EDGE) [x, y] = [EDGE, y + LINE];
    out.push({ x, y, w });
    x += w + 1;
  });
  return out;
}
function tokenBox({ doc, token }, row, { x, y, w }, j) {
  const future = j > token,
    code = future ? 0 : shade(row[j]);
  const ink = future ? css("--muted") : rampInk(code).replace(/var\((.*)\)/, (_, n) => css(n));
  const mark = j === token ? ` stroke="${css("--mark")}" stroke-width="2"` : "";
  const box = `<rect x="${x}" y="${y}" width="${w}" height="24" rx="4" fill="${future ? "url(#future)" : rampCss(code)}"${mark}/>`;
  return box + textAt(x + w / 2, y + 17, LETTER, ink, doc.shown[j], ' text-anchor="middle"');
}
function arcs(panel, places) {
  const middle = (j) => ({ x: places[j].x + places[j].w / 2, y: places[j].y });
  const path = ([j, w]) => {
    const look = `stroke-width="${(1 + 5 * w).toFixed(2)}" opacity="${(0.25 + 0.7 * Math.sqrt(w)).toFixed(2)}"`;
    return `<path d="${arc(middle(panel.token), middle(j))}" fill="none" stroke="${css("--accent")}" ${look}/>`;
  };
  return panel
    .tops()
    .filter(([, w]) => w >= 0.01)
    .map(path)
    .join("");
}
function bars(panel, top) {
  const left = EDGE + SIDE + 32,
    ink = css("--ink");
  const bar = ([j, w], i) => {
    const y = top + 34 + 26 * i,
      box = `<rect x="${left + 158}" y="${y - 11}" width="${(220 * w).toFixed(1)}" height="12" fill="${css("--accent")}"/>`;
    return (
      textAt(left, y, 15, ink, panel.doc.shown[j]) +
      box +
      textAt(WIDTH - EDGE, y, 15, ink, num(w, 4), ' text-anchor="end"')
    );
  };
  return panel.tops().map(bar).join("");
}
function headMap(panel, top) {
  const canvas = el("canvas"),
    box = `x="${EDGE}" y="${top}" width="${SIDE}" height="${SIDE}"`;
  panel.paint(canvas, Math.max(1, Math.floor(840 / panel.doc.text.T)));
  return `<rect ${box} fill="url(#future)"/><image ${box} href="${canvas.toDataURL()}"/>`;
}
const HATCH = (ink) =>
  '<defs><pattern id="future" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' +
  `<rect width="1" height="6" fill="${ink}"/></pattern></defs>`;
export function viewFigure(panel) {
  const { doc, token } = panel,
    row = panel.row(),
    places = placesOf(doc),
    r = panel.values;
  const mapTop = places[places.length - 1].y + 64,
    height = mapTop + SIDE + EDGE;
  const title = `${runTitle(doc.model.name)} · ${headName(panel.layer, panel.head)} · ${quoted(doc, token)} (${token})`;
  const readings = ["start", "previous", "self", "other"].map((k) => `${t(`read.${k}`)} ${num(r[k], 3)}`).join("   ");
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif">`,
    HATCH(css("--hatch")),
    `<rect width="${WIDTH}" height="${height}" fill="${css("--card")}"/>`,
    textAt(EDGE, 38, 20, css("--ink"), title, ' font-weight="600"'),
    textAt(
      EDGE,
      62,
      14,
      css("--muted"),
      `${readings}   ${t("read.future")} 0   ${t("read.sum")} ${num(r.sum, 3)}`,
      ' xml:space="preserve"',
    ),
    arcs(panel, places),
    ...places.map((place, j) => tokenBox(panel, row, place, j)),
    headMap(panel, mapTop),
    bars(panel, mapTop),
    "</svg>",
  ];
  return { text: parts.join(""), width: WIDTH, height };
}
