// The view of one head as a figure of its own, an SVG that needs no style sheet.
import { arc, escapeXml, spaced } from "./core.js";
import { css, el, num, rampCss, rampInk, rampPixel, shade, t } from "./ui.js";
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
function tokenBox({ token }, row, { x, y, w }, j) {
  const fill = j > token ? "url(#future)" : rampCss(shade(row[j])),
    mark = j === token ? ` stroke="${css("--mark")}" stroke-width="2"` : "";
  return `<rect x="${x}" y="${y}" width="${w}" height="24" rx="4" fill="${fill}"${mark}/>`;
}
function tokenText({ doc, token }, row, { x, y, w }, j) {
  const ink = j > token ? css("--muted") : rampInk(shade(row[j])).replace(/var\((.*)\)/, (_, n) => css(n));
  return textAt(x + w / 2, y + 17, LETTER, ink, doc.shown[j], ' text-anchor="middle"');
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
  const left = EDGE + SIDE + 56,
    ink = css("--ink");
  const bar = ([j, w], i) => {
    const y = top + 34 + 26 * i,
      box = `<rect x="${left + 134}" y="${y - 11}" width="${(200 * w).toFixed(1)}" height="12" fill="${css("--accent")}"/>`;
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
  const { doc, token } = panel,
    T = doc.text.T,
    cell = SIDE / T,
    mark = `<rect x="${EDGE}" y="${top + token * cell}" width="${(token + 1) * cell}" height="${cell}" fill="none" stroke="${css("--mark")}" stroke-width="1.5"/>`;
  return `<rect ${box} fill="url(#future)"/><image ${box} href="${canvas.toDataURL()}" style="image-rendering:pixelated"/>${mark}${axes(panel, top)}${legend(top)}`;
}
const HATCH = (ink) =>
  '<defs><pattern id="future" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' +
  `<rect width="1" height="6" fill="${ink}"/></pattern></defs>`;
const BELOW = 96; // room under the map for the names of the keys and the legend
function axes({ doc }, top) {
  // the tokens along both sides, as many as can be read
  const T = doc.text.T,
    step = Math.ceil((T * 9) / SIDE),
    out = [];
  for (let j = 0; j < T; j += step) {
    const middle = ((j + 0.5) * SIDE) / T,
      name = [...doc.shown[j]].slice(0, 9).join("");
    out.push(textAt(EDGE + SIDE + 4, top + middle + 3, 8, css("--muted"), name));
    out.push(
      textAt(
        0,
        0,
        8,
        css("--muted"),
        name,
        ` text-anchor="end" transform="translate(${EDGE + middle + 3} ${top + SIDE + 5}) rotate(-60)"`,
      ),
    );
  }
  return out.join("");
}
function legend(top) {
  // the scale of colours, along the root of the weight
  const y = top + SIDE + 62,
    width = 260,
    steps = 52;
  const cells = Array.from(
    { length: steps },
    (_, i) =>
      `<rect x="${EDGE + (i * width) / steps}" y="${y}" width="${width / steps + 0.5}" height="9" fill="${rampCss(Math.round((255 * i) / (steps - 1)))}"/>`,
  );
  const ticks = [0, 0.1, 0.25, 0.5, 1].map((w) =>
    textAt(
      EDGE + width * Math.sqrt(w),
      y + 22,
      10,
      css("--muted"),
      num(w, w === 0.25 ? 2 : w % 1 ? 1 : 0),
      ' text-anchor="middle"',
    ),
  );
  return cells.join("") + ticks.join("") + textAt(EDGE + width + 16, y + 9, 10, css("--muted"), t("keys.weight"));
}
// Two views, one under the other, as one figure.
export function twoFigures(a, b) {
  const parts = [viewFigure(a), viewFigure(b)],
    height = parts[0].height + parts[1].height;
  const inside = parts.map(({ text }, i) => text.replace("<svg ", `<svg y="${i ? parts[0].height : 0}" `)).join("");
  return {
    text: `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}">${inside}</svg>`,
    width: WIDTH,
    height,
  };
}
// All heads on one sheet, with kinds and scores.
export function headsSheet(panel) {
  const { doc } = panel,
    { n_layer, n_head } = doc.model,
    side = 120,
    gap = 34,
    left = 40,
    top = 96,
    width = left + n_head * (side + 12) + 28;
  const height = top + n_layer * (side + gap) + 40,
    canvas = el("canvas"),
    draw = new Map(doc.heads.map((x) => [`${x.layer}.${x.head}`, x]));
  const cell = (l, h) => {
    const x = left + h * (side + 12),
      y = top + l * (side + gap),
      kind = [draw.get(`${l}.${h}`)?.label ?? "other"].flat()[0],
      score = draw.get(`${l}.${h}`)?.scores?.[kind];
    paintSmall(canvas, doc.weights.pool(l, h));
    const box = `x="${x}" y="${y}" width="${side}" height="${side}"`,
      name = `${l + 1}.${h + 1} ${t(`kind.${kind}`)}${score ? ` ${num(score.v, 2)}` : ""}`;
    return `<rect ${box} fill="url(#future)" stroke="${css("--hatch")}"/><image ${box} href="${canvas.toDataURL()}" style="image-rendering:pixelated"/>${textAt(x, y + side + 15, 12, css("--ink"), name)}`;
  };
  const cells = Array.from({ length: n_layer * n_head }, (_, i) => cell(Math.floor(i / n_head), i % n_head)).join(""),
    text = doc.shown.slice(1).join(" ");
  const words = [
    textAt(left, 40, 20, css("--ink"), `${runTitle(doc.model.name)} · ${t("heads.title")}`, ' font-weight="600"'),
    textAt(left, 66, 13, css("--muted"), text.length > 120 ? `${text.slice(0, 120)}…` : text),
  ];
  const open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif">`;
  return {
    text: `${open}${HATCH(css("--hatch"))}<rect width="${width}" height="${height}" fill="${css("--card")}"/>${words.join("")}${cells}</svg>`,
    width,
    height,
  };
}
function paintSmall(canvas, { n, out }) {
  const image = new ImageData(n, n),
    to = new Uint32Array(image.data.buffer);
  for (let q = 0; q < n; q++) for (let k = 0; k <= q; k++) to[q * n + k] = rampPixel(out[q * n + k]);
  canvas.width = canvas.height = n;
  canvas.getContext("2d").putImageData(image, 0, 0);
}
export function viewFigure(panel) {
  const { doc, token } = panel,
    row = panel.row(),
    places = placesOf(doc),
    r = panel.values;
  const mapTop = places[places.length - 1].y + 64,
    height = mapTop + SIDE + BELOW;
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
    ...places.map((place, j) => tokenBox(panel, row, place, j)),
    arcs(panel, places), // over the boxes, under the words
    ...places.map((place, j) => tokenText(panel, row, place, j)),
    headMap(panel, mapTop),
    bars(panel, mapTop),
    "</svg>",
  ];
  return { text: parts.join(""), width: WIDTH, height };
}
