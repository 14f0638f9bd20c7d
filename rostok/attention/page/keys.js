// The keyboard: arrows only where the strip has the focus; letters anywhere but in a field.
import { clamp } from "./core.js";
import { $, set, state } from "./ui.js";
import { alsoWords, askers } from "./asked.js";
import { texts } from "./documents.js";
import { front, panels } from "./viewer.js";

const wrap = (x, n) => (x + n) % n;
function inStrip(key, panel, shift) {
  const { n_layer } = panel.doc.model,
    last = panel.doc.text.T - 1,
    also = shift ? alsoWords(askers(panel)) : undefined; // with Shift the tokens before stay chosen
  const go = (t) => () => set({ t: clamp(t, 0, last), also });
  const layer = (step) => () => panel.pick(wrap(panel.layer + step, n_layer), panel.head);
  return {
    ArrowLeft: go(state.t - 1),
    ArrowRight: go(state.t + 1),
    Home: go(0),
    End: go(last),
    ArrowUp: layer(-1),
    ArrowDown: layer(1),
    Enter: () => set({ pin: undefined }),
    Escape: () => set({ pin: 0 }),
  }[key];
}
function anywhere(key, panel) {
  const { n_head } = panel.doc.model,
    list = texts(),
    head = (h) => () => panel.pick(panel.layer, h);
  if (/^[1-9]$/.test(key)) return Number(key) <= n_head ? head(Number(key) - 1) : null;
  return {
    "[": head(wrap(panel.head - 1, n_head)),
    "]": head(wrap(panel.head + 1, n_head)),
    t: () => {
      panel.full.open = !panel.full.open;
    },
    e: () => set({ ex: list[wrap(list.indexOf(state.ex) + 1, list.length)] }),
    c: () => set({ cmp: state.cmp === 1 ? undefined : 1 }),
    l: () => set({ lang: state.lang === "en" ? "ru" : "en" }),
    "?": () => $("#keys").showModal(),
  }[key];
}
// The place on the keyboard, not the letter: T is T under a Russian layout too.
const CODES = { BracketLeft: "[", BracketRight: "]", KeyT: "t", KeyE: "e", KeyC: "c", KeyL: "l" };
const letterOf = (e) =>
  CODES[e.code] ??
  (/^Digit\d$/.test(e.code) && !e.shiftKey ? e.code[5] : e.key.length === 1 ? e.key.toLowerCase() : e.key);
export function pressed(e) {
  if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || $("#keys").open) return;
  if (e.target.matches?.("input, select, textarea, [contenteditable]") || !panels.a?.doc.shown) return;
  const panel = e.target.closest?.("[data-panel=b]") ? panels.b : front(),
    key = letterOf(e);
  const act =
    (e.target.closest?.(".strip") && inStrip(key, panel, e.shiftKey)) ||
    (state.keys === 0 ? null : anywhere(key, panel));
  if (!act) return;
  e.preventDefault();
  act();
}
