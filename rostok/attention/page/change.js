// Change it and see: heads, layers, kinds and MLPs switched off, keys closed, in a live page. The address keeps all of it.
import { ask, anyChange, closedKeys, live, silentHeads, silentMlps, toggleKey } from "./live.js";
import { $, button, el, num, percent, redraw, set, state, t } from "./ui.js";
import { maps, quoted } from "./documents.js";
import { front } from "./viewer.js";
import { chance } from "./next.js";

const written = (list, join) => (list.length ? list.map((x) => x.join(join)).join("_") : undefined);
const headWords = (list) =>
  written(
    list.map(([l, h]) => [l + 1, h + 1]),
    ".",
  );
export const isOff = (l, h) => silentHeads().some(([a, b]) => a === l && b === h);
function toggleAll(pairs) {
  // all off, unless all are off already
  const off = silentHeads(),
    has = ([l, h]) => off.some(([a, b]) => a === l && b === h);
  const rest = off.filter(([a, b]) => !pairs.some(([l, h]) => a === l && b === h));
  set({ off: headWords(pairs.every(has) ? rest : [...rest, ...pairs].sort((x, y) => x[0] - y[0] || x[1] - y[1])) });
}
export const toggleHead = (l, h) => toggleAll([[l, h]]);
function toggleMlp(l) {
  const off = silentMlps(),
    next = off.includes(l) ? off.filter((x) => x !== l) : [...off, l].sort((a, b) => a - b);
  set({
    mlp: written(
      next.map((x) => [x + 1]),
      "",
    ),
  });
}
const isPressed = (yes) => ({ "aria-pressed": String(yes) });
function switches(panel) {
  const { layer: l, head: h, doc, token } = panel,
    { n_head, n_layer } = doc.model,
    heads = Array.from({ length: n_head }, (_, i) => [l, i]);
  const kind = [doc.heads.find((x) => x.layer === l && x.head === h)?.label].flat()[0];
  const alike = doc.heads.filter((x) => [x.label].flat()[0] === kind).map((x) => [x.layer, x.head]);
  const key = panel.tops(1)[0]?.[0],
    shut = closedKeys().some(([a, b]) => a === token && b === key);
  return [
    button(t("change.head", { head: `${l + 1}.${h + 1}` }), () => toggleHead(l, h), {
      "data-key": "off-head",
      ...isPressed(isOff(l, h)),
    }),
    button(t("change.layer", { l: l + 1 }), () => toggleAll(heads), {
      "data-key": "off-layer",
      ...isPressed(heads.every(([a, b]) => isOff(a, b))),
    }),
    kind
      ? button(t("change.kind", { kind: t(`kind.${kind}`), n: alike.length }), () => toggleAll(alike), {
          "data-key": "off-kind",
          ...isPressed(alike.every(([a, b]) => isOff(a, b))),
        })
      : null,
    n_layer
      ? button(t("change.mlp", { l: l + 1 }), () => toggleMlp(l), {
          "data-key": "off-mlp",
          ...isPressed(silentMlps().includes(l)),
        })
      : null,
    key === undefined
      ? null
      : button(t("change.key", { q: quoted(doc, token), k: quoted(doc, key) }), () => toggleKey(token, key), {
          "data-key": "cut",
          ...isPressed(shut),
        }),
    anyChange()
      ? button(t("change.none"), () => set({ off: undefined, mlp: undefined, cut: undefined }), {
          "data-key": "all-on",
          class: "button main",
        })
      : null,
  ];
}
const mean = (losses) => {
  const known = losses.nll.slice(1);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : 0;
};
export function guessBefore({ doc, token }) {
  // the guess after the chosen token, before and now; "" where nothing is switched off
  const { losses, before } = doc;
  if (!before) return "";
  const last = token + 1 >= doc.text.T,
    [a, b] = [before, losses].map((x) => (last ? x.after : x.top[token + 1])[0]),
    name = ([piece]) => piece.trim() || piece;
  const vars = { q: quoted(doc, token), a: name(a), pa: chance(a[1]), b: name(b), pb: chance(b[1]) };
  return t("change.guess", vars);
}
export const whatIsOff = () =>
  [
    ...silentHeads().map(([l, h]) => `${l + 1}.${h + 1}`),
    ...silentMlps().map((l) => t("change.mlp.name", { l: l + 1 })),
    ...closedKeys().map(([q, k]) => `${q} → ${k}`),
  ].join(t("list.comma"));
function effect(panel) {
  // before beside after: the loss of the text, the guess after the chosen token
  const { losses, before } = panel.doc;
  if (!before) return el("p", { class: "small", text: t("change.hint") });
  const diff = mean(losses) - mean(before),
    vars = {
      before: num(mean(before), 3),
      after: num(mean(losses), 3),
      diff: `${diff >= 0 ? "+" : ""}${num(diff, 3)}`,
    };
  return el(
    "div",
    { class: "callout lost", id: "effect", role: "status" },
    el("p", {}, t("change.off"), " ", el("b", { text: whatIsOff() })),
    el("p", { text: t("change.loss", vars) }),
    el("p", { text: guessBefore(panel) }),
  );
}
export function drawChange() {
  const box = $("#change"),
    panel = front();
  box.hidden = !live.on || !maps(panel.doc);
  if (box.hidden) return;
  const focus = document.activeElement?.dataset?.key;
  const look = button(t(matter.running ? "matter.running" : "matter.go"), findMatter, {
    id: "matter",
    disabled: matter.running,
  });
  redraw(
    box,
    el("h3", { text: t("change.title") }),
    effect(panel),
    el("div", { class: "row" }, ...switches(panel).filter(Boolean), look),
    matterNote(),
  );
  if (focus) $(`[data-key="${focus}"]`, box)?.focus({ preventScroll: true });
}

// ---- which heads matter here: what the guess loses without each of them
export const matter = { result: null, key: "", running: false, number: 0 };
const keyOf = ({ doc, token }) => `${doc.key} ${token}`;
export const matterNow = () => (matter.key === keyOf(front()) ? matter.result : null);
async function findMatter() {
  const panel = front(),
    key = keyOf(panel),
    T = panel.doc.text.T;
  matter.running = true;
  drawChange();
  const target = panel.token + 1 < T ? panel.doc.text.ids[panel.token + 1] : undefined;
  const result = await ask("matter", { run: panel.doc.run, t: panel.token, target });
  Object.assign(matter, { result, key, running: false });
  drawChange();
  live.painted?.();
}
function matterNote() {
  const now = matterNow();
  if (!now) return null;
  const { n_head } = front().doc.model,
    order = now.list
      .map((x, i) => [i, x])
      .sort((a, b) => a[1] - b[1])
      .slice(0, 3);
  const names = order.map(
    ([i, x]) =>
      `${Math.floor(i / n_head) + 1}.${(i % n_head) + 1}: ${percent(now.p, 1)} → ${chance(now.p * Math.exp(x))}`,
  );
  return el(
    "p",
    { class: "small", id: "matter-note" },
    t("matter.note", { q: now.token.trim() || now.token, p: chance(now.p), list: names.join(t("list.comma")) }),
  );
}
