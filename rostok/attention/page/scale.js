// Why scores are divided by the root of d: the spread of a dot product, and the softmax that comes of it.
import { dotSamples, entropy, escapeXml, histogram, random, softmax, spread } from "./core.js";
import { $, css, el, later, num, percent, redraw, saveButtons, set, slider, standAlone, state, sv, t } from "./ui.js";

const SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
  KEYS = 64,
  QUERIES = 512,
  AT_ONCE = 16;
const samples = SIZES.map(() => []),
  next = random(1); // for every size the scores of one query after another
function moreSamples() {
  // a few queries at a time, so that the page never waits; true while there are more to come
  for (let n = 0; n < AT_ONCE && samples[0].length < QUERIES * KEYS; n++)
    dotSamples(SIZES, KEYS, next).forEach((xs, i) => samples[i].push(...xs));
  return samples[0].length < QUERIES * KEYS;
}
function scaleNow(d) {
  // both ways: the spread of the scores, the mean softmax over 64 keys of one query
  const raw = samples[SIZES.indexOf(d)],
    scaled = raw.map((x) => x / Math.sqrt(d)),
    PAIRS = raw.length;
  const measure = (xs) => {
    const share = KEYS / PAIRS,
      weights = new Array(KEYS).fill(0); // the mean of many softmaxes, each sorted
    let bits = 0;
    for (let i = 0; i < PAIRS; i += KEYS) {
      const p = softmax(xs.slice(i, i + KEYS)).sort((a, b) => b - a);
      p.forEach((x, n) => {
        weights[n] += x * share;
      });
      bits += entropy(p) * share;
    }
    return { xs, sd: spread(xs), top: weights[0], entropy: bits, weights };
  };
  return { raw: measure(raw), scaled: measure(scaled) };
}
const W = 420,
  H = 150,
  SOFT = 96,
  BINS = 41;
function ticks(edge) {
  const step = edge > 60 ? 40 : edge > 30 ? 20 : edge > 14 ? 10 : edge > 7 ? 5 : 2,
    out = [];
  for (let x = -Math.floor(edge / step) * step; x <= edge; x += step) {
    const at = { x: W / 2 + (x / edge) * (W / 2 - 14), y: H - 2 };
    if (Math.abs(x) < edge) out.push(sv("text", { class: "tick", ...at, "text-anchor": "middle", text: num(x, 0) }));
  }
  return out;
}
function columns(heights, bottom) {
  // bars side by side over the whole width
  const w = W / heights.length;
  return heights
    .map((h, i) => `M${(i * w + 0.5).toFixed(1)} ${bottom}v${(-h).toFixed(1)}h${(w - 1).toFixed(1)}V${bottom}z`)
    .join("");
}
function scoresChart(m, edge) {
  const counts = histogram(m.xs, -edge, edge, BINS),
    high = Math.max(...counts);
  const look = {
    viewBox: `0 0 ${W} ${H}`,
    role: "img",
    class: "chart",
    "aria-label": t("scale.hist", { sd: num(m.sd, 2) }),
  };
  const bars = sv("path", {
    class: "fill",
    d: columns(
      counts.map((c) => (c / high) * (H - 24)),
      H - 18,
    ),
  });
  return sv("svg", look, bars, sv("path", { class: "axis", d: `M0 ${H - 17.5}H${W}` }), ...ticks(edge));
}
function softmaxChart(m) {
  const look = {
    viewBox: `0 0 ${W} ${SOFT + 1}`,
    role: "img",
    class: "chart",
    "aria-label": t("scale.softmax", { top: percent(m.top, 0) }),
  };
  const bars = sv("path", {
    class: "fill",
    d: columns(
      m.weights.map((p) => p * (SOFT - 4)),
      SOFT,
    ),
  });
  return sv("svg", look, bars, sv("path", { class: "axis", d: `M0 ${SOFT + 0.5}H${W}` }));
}
function chart(name, m, edge) {
  const entropyText = t("scale.of", { x: num(m.entropy, 2), all: num(Math.log(KEYS), 2) });
  const facts = [
    ["sd", num(m.sd, 2)],
    ["top", percent(m.top, 0)],
    ["entropy", entropyText],
  ];
  const fact = ([k, v]) =>
    el("div", { "data-measure": k }, el("dt", { text: t(`scale.m.${k}`) }), el("dd", { text: v }));
  return el(
    "figure",
    { class: `spread ${name}`, "data-side": name },
    el("figcaption", {}, el("b", { text: t(`scale.${name}`) })),
    scoresChart(m, edge),
    el("p", { class: "small", text: t("scale.soft") }),
    softmaxChart(m),
    el("dl", { class: "mini" }, ...facts.map(fact)),
  );
}
function chartsSheet() {
  // the four charts on one sheet, the two sides beside each other, each chart under its title
  const width = 2 * (W + 40) + 40,
    height = H + SOFT + 170,
    ink = css("--ink"),
    words = (x, y, text, size) => `<text x="${x}" y="${y}" font-size="${size}" fill="${ink}">${escapeXml(text)}</text>`;
  const side = (figure, n) => {
    const x = 40 + n * (W + 40);
    let y = 40,
      out = words(x, y, figure.querySelector("figcaption").textContent, 17);
    for (const chart of figure.querySelectorAll("svg")) {
      const one = standAlone(chart);
      out += words(x, y + 26, chart.getAttribute("aria-label"), 12);
      out += one.text.replace("<svg", `<svg x="${x}" y="${y + 36}"`);
      y += one.height + 50;
    }
    return out;
  };
  const sides = [...document.querySelectorAll("#scale-charts figure")].map(side).join(""),
    open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif">`;
  return { text: `${open}<rect width="100%" height="100%" fill="${css("--card")}"/>${sides}</svg>`, width, height };
}
export function drawScale() {
  if (moreSamples()) later(drawScale);
  const d = SIZES.includes(state.d) ? state.d : 64,
    both = scaleNow(d),
    edge = Math.max(4, 3.6 * both.raw.sd);
  const charts = el(
    "div",
    { class: "two", id: "scale-charts" },
    chart("raw", both.raw, edge),
    chart("scaled", both.scaled, edge),
  );
  const note = el("p", {
    class: "callout",
    role: "status",
    id: "scale-note",
    text: t(d < 8 ? "scale.small" : "scale.big", {
      d: num(d, 0),
      top: percent(both.raw.top, 0),
      after: percent(both.scaled.top, 0),
    }),
  });
  const body = $("#scale-body"),
    old = $("#size", body);
  if (old && old.dataset.lang === state.lang) {
    old.value = SIZES.indexOf(d);
    $("#scale-charts").replaceWith(charts);
    $("#scale-note").replaceWith(note);
    return;
  }
  const bar = slider({
    id: "size",
    label: t("scale.size"),
    min: 0,
    max: SIZES.length - 1,
    step: 1,
    value: SIZES.indexOf(d),
    show: (i) => `d = ${SIZES[i]}`,
    move: (i) => set({ d: SIZES[i] }),
  });
  bar.querySelector("input").dataset.lang = state.lang;
  redraw(
    body,
    el(
      "div",
      { class: "controls" },
      bar,
      saveButtons(() => "scores", chartsSheet),
    ),
    charts,
    note,
  );
}
