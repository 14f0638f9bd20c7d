// The bar under the header: text, token, layer and head stay in reach in every section.
import { $, button, el, num, picker, redraw, segment, set, state, t } from "./ui.js";
import { docOf, headName, maps, quoted, runTitle, textTitle, texts } from "./documents.js";
import { guessBefore, whatIsOff } from "./change.js";
import { front } from "./viewer.js";

const sides = () => [
  ["a", "1", runTitle(docOf(state.ex, state.run).model.name)],
  ["b", "2", runTitle(docOf(state.ex, state.run2).model.name)],
];
export function drawFocus() {
  const p = front(),
    { doc, token } = p,
    { n_layer, n_head } = doc.model,
    held = document.activeElement?.dataset?.key;
  const step = (by) => () => set({ t: Math.min(doc.text.T - 1, Math.max(0, p.token + by)), also: undefined });
  const heads = Array.from({ length: n_layer * n_head }, (_, i) => [Math.floor(i / n_head), i % n_head]);
  const names = heads.map(([l, h]) => [`${l}.${h}`, headName(l, h)]),
    pick = (word) => p.pick(...word.split(".").map(Number));
  const before = button("‹", step(-1), { "data-key": "focus-before", "aria-label": t("focus.before") });
  const after = button("›", step(1), { "data-key": "focus-after", "aria-label": t("focus.after") });
  const here = el(
    "span",
    { class: "focus-token" },
    el("bdi", { class: "chip", text: quoted(doc, token) }),
    ` ${num(token, 0)}`,
  );
  redraw(
    $("#focus"),
    texts().length > 1
      ? picker(
          t("example"),
          texts().map((x) => [x, textTitle(x)]),
          state.ex,
          (ex) => set({ ex }),
        )
      : null,
    state.cmp === 1 ? segment(t("focus.of"), sides(), state.of ?? "a", (of) => set({ of })) : null,
    el("div", { class: "field" }, el("span", { class: "label", text: t("keys.token") }), before, here, after),
    maps(doc) ? picker(t("focus.head"), names, `${p.layer}.${p.head}`, pick) : null,
    doc.before
      ? el("p", { class: "focus-change" }, `${t("change.off")} `, el("b", { text: whatIsOff() }), `. ${guessBefore(p)}`)
      : null,
  );
  if (held?.startsWith("focus-")) $(`[data-key="${held}"]`)?.focus({ preventScroll: true });
}
