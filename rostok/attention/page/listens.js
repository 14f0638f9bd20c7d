// Whom the chosen token listens to: the eight largest weights, which a live page can close, and all weights as a table.
import { barCell, button, el, keepFocus, num, redraw, t } from "./ui.js";
import { quoted } from "./documents.js";
import { askersName } from "./asked.js";
import { closedTo, live, toggleKey } from "./live.js";

const headRow = (names) => el("tr", {}, ...names.map((k) => el("th", { scope: "col", text: t(k) })));
function keySwitch({ doc, token }, j, shut) {
  const name = t("change.key", { q: quoted(doc, token), k: quoted(doc, j) });
  const look = {
    class: "button shut-key",
    "data-key": `shut-${j}`,
    "aria-pressed": String(shut),
    "aria-label": name,
    title: name,
  };
  return el(
    "td",
    {},
    button(t(shut ? "keys.open" : "keys.shut"), () => toggleKey(token, j), look),
  );
}
function listenRow(panel, [j, w], shut = false) {
  const more = live.on ? [keySwitch(panel, j, shut)] : [];
  return el(
    "tr",
    { "data-key": j, class: shut ? "shut" : null },
    el("th", { scope: "row" }, el("bdi", { text: quoted(panel.doc, j) })),
    el("td", { class: "place", text: j }),
    barCell(w),
    el("td", { class: "n", text: shut ? t("keys.closed") : num(w, 4) }),
    ...more,
  );
}
export function drawKeys(panel) {
  const { doc, token } = panel,
    title = t("keys.title", { q: askersName(panel) }),
    shut = closedTo(doc, token),
    columns = ["token", "place", "bar", "n", ...(live.on ? ["shut"] : [])];
  const rows = panel
    .tops()
    .filter(([j]) => !shut.includes(j))
    .map((key) => listenRow(panel, key));
  const head = headRow(["keys.token", "keys.place", "keys.bar", "keys.weight", ...(live.on ? ["keys.switch"] : [])]);
  const table = el(
    "table",
    { class: "bars" },
    el("caption", { class: "sr", text: title }),
    el("colgroup", {}, ...columns.map((k) => el("col", { class: `col-${k}` }))),
    el("thead", { class: "sr" }, head),
    el("tbody", {}, ...rows, ...shut.map((j) => listenRow(panel, [j, 0], true))),
  );
  keepFocus(panel.keys, () => redraw(panel.keys, el("h3", { text: title }), table));
}
export function drawAllKeys(panel) {
  const { doc, full } = panel,
    row = panel.row(),
    title = t("full.title", { n: row.length });
  if (!full.firstChild) full.addEventListener("toggle", () => full.open && drawAllKeys(panel));
  redraw(full, el("summary", { text: title }));
  if (!full.open) return;
  const exact = new Set(panel.tops().map(([j]) => j)); // of a static page: the others are coded in a byte
  const value = (w, j) => (doc.live || exact.has(j) ? num(w, 4) : `≈ ${num(w, 2)}`);
  const line = (w, j) =>
    el(
      "tr",
      {},
      el("td", { class: "n", text: j }),
      el("td", {}, el("bdi", { text: quoted(doc, j) })),
      el("td", { class: "n", text: value(w, j) }),
    );
  const head = el("thead", {}, headRow(["keys.place", "keys.token", "keys.weight"])),
    table = el("table", { class: "plain" }, head, el("tbody", {}, ...Array.from(row, line)));
  full.append(el("div", { class: "scroller table", tabindex: "0", role: "group", "aria-label": title }, table));
}
