// What the model writes after the chosen token: the guess to which this row of attention belongs, beside what it was before
// something was switched off. (How the chosen token itself was guessed is the row before; the viewer shows that apart.)
import { visible } from "./core.js";
import { live } from "./live.js";
import { el, num, percent, redraw, t } from "./ui.js";
import { quoted } from "./documents.js";

export const named = (piece) => (piece === "◆" ? "◆" : visible(piece));
// A probability for people: 97.6%, 0.004%, and below that a power of ten instead of 0.000%.
export const chance = (p) =>
  p >= 0.0005
    ? percent(p, p < 0.01 ? 2 : 1)
    : p > 0
      ? `${num(p / 10 ** Math.floor(Math.log10(p)), 1)}·10${raised(Math.floor(Math.log10(p)))}`
      : "0";
const raised = (n) => [...String(n)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
export const guessesAfter = (losses, token, T) => (token + 1 < T ? losses.top[token + 1] : losses.after) ?? [];

function guessRow(doc, token, [piece, p], before, append) {
  const own = token + 1 < doc.text.T && piece === doc.text.pieces[token + 1];
  const word = el("bdi", { class: `chip${own ? " true" : ""}`, text: named(piece) }),
    was = before?.find(([other]) => other === piece)?.[1];
  const name = append
    ? el(
        "button",
        {
          type: "button",
          class: "guess",
          "data-key": `guess-${piece}`,
          title: t("next.append"),
          onclick: () => append(piece),
        },
        word,
      )
    : word;
  return el(
    "tr",
    { class: own ? "own" : null },
    el("th", { scope: "row" }, name, own ? el("span", { class: "small", text: ` ${t("next.true")}` }) : null),
    el(
      "td",
      { class: "bar-cell" },
      el(
        "div",
        {},
        el("span", { style: { width: `${100 * p}%` } }),
        was === undefined ? null : el("span", { class: "was", style: { width: `${100 * was}%` } }),
      ),
    ),
    el("td", { class: "n", text: chance(p) }),
    before ? el("td", { class: "n was", text: was === undefined ? "–" : chance(was) }) : null,
  );
}
function trueToken({ losses, text, before }, token) {
  // the token that really follows, where it is not among the likeliest
  if (token + 1 >= text.T) return null;
  const vars = {
    q: named(text.pieces[token + 1]),
    p: chance(losses.p[token + 1]),
    rank: num(losses.rank[token + 1], 0),
    loss: num(losses.nll[token + 1], 2),
  };
  const change = before
    ? ` ${t("next.before", { p: chance(before.p[token + 1]), loss: num(before.nll[token + 1], 2) })}`
    : "";
  return el("p", { class: "small" }, t("next.follows", vars), change);
}
export function drawNext(panel) {
  const { doc, token } = panel,
    { losses, before } = doc;
  if (!losses) return redraw(panel.next);
  const list = guessesAfter(losses, token, doc.text.T),
    was = before && guessesAfter(before, token, doc.text.T);
  const append = live.on && token === doc.text.T - 1 ? live.append : null;
  const columns = [t("keys.token"), t("keys.bar"), t("token.p"), ...(before ? [t("next.was")] : [])];
  const head = el(
    "thead",
    { class: before ? null : "sr" },
    el("tr", {}, ...columns.map((text) => el("th", { scope: "col", text }))),
  );
  const rows = list.map((guess) => guessRow(doc, token, guess, was, append));
  return redraw(
    panel.next,
    el("h3", { text: t("next.title", { q: quoted(doc, token) }) }),
    el("table", { class: "bars guesses" }, head, el("tbody", {}, ...rows)),
    trueToken(doc, token),
  );
}
