// Small helpers that every widget uses: elements, words in two languages, state, colours, files to save.
import { number, formatHash, parseHash } from "./core.js";

export const $ = (selector, root = document) => root.querySelector(selector);
const SVG = "http://www.w3.org/2000/svg";

function make(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return node;
}
export const el = (tag, props, ...children) => make(document.createElement(tag), props, children);
export const sv = (tag, props, ...children) => make(document.createElementNS(SVG, tag), props, children);

// ---- state: one flat object, kept in the address
export const state = { lang: "en" };
const watchers = [];
export const watch = (f) => watchers.push(f);
export function set(patch) {
  Object.assign(state, patch);
  for (const f of watchers) f(patch);
  saveSoon();
}
let timer = 0;
function saveSoon() {
  clearTimeout(timer);
  timer = setTimeout(save, 150);
}
function save() {
  const hash = formatHash(shown());
  if (hash === location.hash) return;
  try {
    history.replaceState(null, "", hash);
  } catch {
    location.replace(hash);
  }
}
// Layers, heads and tokens count from 1 in the address, as on the page (token 0 is the start sign).
const ONE_BASED = ["l", "h", "l2", "h2"];
export function shown() {
  const { lang, ...rest } = state;
  const out = { lang };
  for (const [k, v] of Object.entries(rest)) out[k] = ONE_BASED.includes(k) && v !== undefined ? v + 1 : v;
  return out;
}
export const fromAddress = () => parseHash(location.hash);

// ---- words
let strings = { en: {}, ru: {} };
export const setStrings = (s) => {
  strings = s;
};
export function t(key, vars = {}) {
  const text = strings[state.lang]?.[key];
  if (text === undefined) {
    console.error(`no string ${key} in ${state.lang}`);
    return key;
  }
  return text.replace(/\{(\w+)\}/g, (_, name) => vars[name] ?? "");
}
export const has = (key) => strings[state.lang]?.[key] !== undefined;
export const num = (x, digits = 3) => number(x, digits, state.lang);
export const percent = (x, digits = 1) => `${num(100 * x, digits)}${state.lang === "ru" ? "\u00a0" : ""}%`;
export function translatePage() {
  document.documentElement.lang = state.lang;
  document.title = `${t("title")} · Rostok`;
  for (const node of document.querySelectorAll("[data-i]")) node.textContent = t(node.dataset.i);
  for (const node of document.querySelectorAll("[data-i-label]"))
    node.setAttribute("aria-label", t(node.dataset.iLabel));
}

// ---- colour: one hue, from paper to ink, along the root of the weight; so a weight of 0.01 is still seen
let ramp = [];
let inkOn = [];
let pixels = new Uint32Array(0);
const NAMES = [
  "--ramp0",
  "--ramp1",
  "--ramp2",
  "--ink-on-paper",
  "--ink-on-ramp",
  "--ink",
  "--muted",
  "--card",
  "--accent",
  "--mark",
  "--hatch",
];
const colours = {}; // read once a theme: asking the browser in the middle of drawing would make it lay out twice
export const css = (name) => colours[name];
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const light = (c) => {
  const [r, g, b] = c.map((x) => ((x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
export const contrast = (a, b) => {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
export function readColours() {
  const look = getComputedStyle(document.documentElement);
  for (const name of NAMES) colours[name] = look.getPropertyValue(name).trim();
  const stops = ["--ramp0", "--ramp1", "--ramp2"].map((name) => rgb(css(name)));
  const dark = rgb(css("--ink-on-paper")),
    pale = rgb(css("--ink-on-ramp"));
  ramp = Array.from({ length: 256 }, (_, i) => {
    const x = (i / 255) * 2,
      k = x < 1 ? 0 : 1,
      f = x - k;
    return stops[k].map((c, n) => Math.round(c + (stops[k + 1][n] - c) * f));
  });
  pixels = new Uint32Array(new Uint8Array(ramp.flatMap((c) => [...c, 255])).buffer);
  inkOn = ramp.map((c) => (contrast(c, dark) >= contrast(c, pale) ? "--ink-on-paper" : "--ink-on-ramp"));
}
export const shade = (w) => Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, w))));
export const rampPixel = (code) => pixels[code]; // the four bytes of a canvas pixel
export const rampCss = (code) => `rgb(${ramp[code].join(" ")})`;
export const rampInk = (code) => `var(${inkOn[code]})`;

// ---- controls
export function segment(label, options, chosen, choose) {
  const group = el("div", { class: "seg", role: "group", "aria-label": label });
  for (const [value, text, title] of options) {
    group.append(
      el("button", {
        type: "button",
        text,
        title,
        "aria-pressed": String(value === chosen),
        "data-value": value,
        onclick: () => choose(value),
      }),
    );
  }
  return el("div", { class: "field" }, el("span", { class: "label", "aria-hidden": "true", text: label }), group);
}
export function press(root, label, chosen) {
  // another button of the segment of this name
  for (const b of root.querySelectorAll(`[aria-label="${label}"] button`))
    b.setAttribute("aria-pressed", String(b.dataset.value === String(chosen)));
}
export function picker(label, options, chosen, choose) {
  const select = el("select", { "aria-label": label, onchange: (e) => choose(e.target.value) });
  for (const [value, text] of options)
    select.append(el("option", { value, text, selected: String(value) === String(chosen) }));
  return el("div", { class: "field" }, el("span", { class: "label", "aria-hidden": "true", text: label }), select);
}
export const button = (text, press, more = {}) =>
  el("button", { type: "button", class: "button", text, onclick: press, ...more });
export function slider({ id, label, min, max, step, value, show, move }) {
  const out = el("output", { for: id, text: show(value) });
  const input = el("input", { type: "range", id, min, max, step, "aria-valuetext": show(value) });
  input.value = value;
  input.addEventListener("input", () => {
    out.textContent = show(Number(input.value));
    input.setAttribute("aria-valuetext", show(Number(input.value)));
    move(Number(input.value));
  });
  return el("div", { class: "slider" }, el("label", { for: id, text: label }), input, out);
}
export const barCell = (w) =>
  el("td", { class: "bar-cell" }, el("div", {}, el("span", { style: { width: `${100 * w}%` } })));
// When the page has nothing else to do; gives what calls it off.
export function later(f) {
  if (typeof requestIdleCallback === "undefined") {
    const id = setTimeout(f, 60);
    return () => clearTimeout(id);
  }
  const id = requestIdleCallback(f, { timeout: 1000 });
  return () => cancelIdleCallback(id);
}
export const redraw = (node, ...children) => {
  node.replaceChildren(...children.flat().filter(Boolean));
  return node;
};
// Draw again without losing the place of the keyboard: the focused control is found again by its mark.
export function keepFocus(root, draw) {
  const was = document.activeElement,
    inside = root.contains(was) && was !== root;
  const mark =
    inside && (was.id ? `#${CSS.escape(was.id)}` : was.dataset.key ? `[data-key="${was.dataset.key}"]` : null);
  const label =
    inside && was.dataset.value !== undefined ? [was.parentNode.getAttribute("aria-label"), was.dataset.value] : null;
  draw();
  if (mark) $(mark, root)?.focus({ preventScroll: true });
  else if (label) {
    for (const b of root.querySelectorAll(`[data-value="${CSS.escape(label[1])}"]`)) {
      if (b.parentNode.getAttribute("aria-label") === label[0]) b.focus({ preventScroll: true });
    }
  }
}

// ---- files to save
export function saveBlob(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
export const saveSvg = (name, text) => saveBlob(`${name}.svg`, new Blob([text], { type: "image/svg+xml" }));
export async function svgToPng(text, width, height, times = 2) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = el("canvas", { width: Math.round(width * times), height: Math.round(height * times) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
export async function savePng(name, text, width, height) {
  saveBlob(`${name}.png`, await svgToPng(text, width, height));
}
// An SVG of the page as a file of its own: the colours that the style sheet gave it are written into it.
export function standAlone(node) {
  const copy = node.cloneNode(true),
    from = [node, ...node.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((a, i) => {
    const look = getComputedStyle(a);
    for (const name of [
      "fill",
      "stroke",
      "stroke-width",
      "stroke-dasharray",
      "opacity",
      "paint-order",
      "stroke-linejoin",
      "font-size",
      "font-weight",
      "text-anchor",
    ]) {
      to[i].setAttribute(name, look.getPropertyValue(name));
    }
    to[i].setAttribute("font-family", "sans-serif");
    for (const name of ["style", "class", "tabindex", "role", "aria-label"]) to[i].removeAttribute(name);
  });
  const { width, height } = node.viewBox.baseVal;
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(sv("rect", { width, height, fill: css("--card") }));
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}
export function saveButtons(name, build) {
  return el(
    "div",
    { class: "save" },
    button("SVG", () => saveSvg(name(), build().text), { "aria-label": t("save.svg") }),
    button(
      "PNG",
      () => {
        const { text, width, height } = build();
        savePng(name(), text, width, height);
      },
      { "aria-label": t("save.png") },
    ),
  );
}
