// Two questions to answer, two programs to copy, and worked examples, every number exact.
import { softmax } from "./core.js";
import { $, button, el, has, keepFocus, num, percent, redraw, set, state, t } from "./ui.js";

const QUESTIONS = [
  { name: "negative", options: 3, right: 1 },
  { name: "shuffle", options: 3, right: 1 },
];
// The answers are in the address: a number for each question, - where there is none.
const answerOf = (at) => (/\d/.test(state.quiz?.[at] ?? "") ? Number(state.quiz[at]) : undefined);
const withAnswer = (at, i) => QUESTIONS.map((_, n) => (n === at ? i : (answerOf(n) ?? "-"))).join("");

function option({ name, right }, at, i) {
  const chosen = answerOf(at) === i,
    verdict = i === right ? "right" : "wrong";
  const letter = chosen ? (i === right ? "✓" : "✗") : "ABC"[i];
  const look = {
    type: "button",
    class: `option${chosen ? ` ${verdict}` : ""}`,
    "data-key": `quiz-${name}-${i}`,
    "aria-pressed": String(chosen),
    onclick: () => set({ quiz: withAnswer(at, i) }),
  };
  return el(
    "button",
    look,
    el("span", { class: "letter", "aria-hidden": "true", text: letter }),
    el("span", { text: t(`quiz.${name}.${i}`) }),
  );
}
function question(quiz, at) {
  const { name, options, right } = quiz,
    chosen = answerOf(at),
    answered = chosen !== undefined;
  const verdict =
    answered &&
    el("p", {}, el("b", { text: t(chosen === right ? "quiz.right" : "quiz.wrong") }), " ", t(`quiz.${name}.why`));
  return el(
    "article",
    { class: "card question", "data-quiz": name },
    el("h3", { text: t(`quiz.${name}`) }),
    el("p", { text: t(`quiz.${name}.ask`) }),
    el(
      "div",
      { class: "options", role: "group", "aria-label": t(`quiz.${name}`) },
      ...Array.from({ length: options }, (_, i) => option(quiz, at, i)),
    ),
    el(
      "div",
      { class: "explain", role: "status" },
      ...(answered ? [verdict, name === "negative" ? sums() : orders()] : []),
    ),
  );
}
const numberCell = (text) => el("td", { class: "n", text });
const plainTable = (heads, rows) =>
  el(
    "table",
    { class: "plain" },
    el("thead", {}, el("tr", {}, ...heads.map((key) => el("th", { scope: "col", text: t(key) })))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells))),
  );
function sums() {
  const scores = [-3, -5, -6, -9];
  const rows = softmax(scores).map((w, i) => [numberCell(num(scores[i], 0)), numberCell(percent(w, 2))]);
  return plainTable(["plane.score", "plane.weight"], rows);
}
function orders() {
  // the largest change of the output over all 24 orders of four past tokens
  const rows = [
    ["one", "2.2·10⁻¹⁶"],
    ["rope", num(0.626, 3)],
    ["two", num(0.902, 3)],
    ["bi", "4.4·10⁻¹⁶"],
  ];
  return plainTable(
    ["quiz.setup", "quiz.change"],
    rows.map(([k, x]) => [
      el("th", { scope: "row", text: t(`quiz.setup.${k}`) }),
      numberCell(state.lang === "ru" ? x.replace(".", ",") : x),
    ]),
  );
}

const flat = (x) => (Array.isArray(x) ? x.flatMap(flat) : [x]);
const show = (x, factor) =>
  flat(x)
    .map((v) =>
      num(
        v * factor,
        Number.isInteger(v * factor) ? 0 : Math.abs(v * factor) >= 1000 ? 2 : Math.abs(v * factor) >= 10 ? 4 : 6,
      ),
    )
    .map((text) => (state.lang === "en" ? text.replace(",", "") : text)); // ungrouped, as printed
const each = (texts) => texts.map((text) => el("span", { class: "v", text }));
const called = (name) =>
  name
    .replace(/-(\d+)/g, "\u00a0$1")
    .split("-")
    .map((part) => part.replace(/^\w+/, (w) => (has(`part.${w}`) ? t(`part.${w}`) : w)))
    .join(" · ");
function example(x) {
  const row = (v) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: called(v.name) }),
      el("td", { class: "n" }, ...each(show(v.exact, v.factor))),
    );
  const head = el("tr", {}, ...["examples.value", "examples.exact"].map((k) => el("th", { scope: "col", text: t(k) })));
  const table = el("table", { class: "plain" }, el("thead", {}, head), el("tbody", {}, ...x.values.map(row)));
  return el(
    "article",
    { class: "card example", "data-example": x.handle },
    el("h3", { text: x.title[state.lang] }),
    table,
  );
}
function program({ name, code, output }) {
  const copy = button(t("code.copy"), async () => {
    const range = document.createRange();
    range.selectNodeContents(copy.closest(".program").querySelector("code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range); // where the browser lends no clipboard, the code is selected at least
    await navigator.clipboard?.writeText(code);
    copy.textContent = t("code.copied");
  });
  return el(
    "article",
    { class: "card program", "data-program": name },
    el("div", { class: "row" }, el("h3", { text: t(`code.${name}`) }), copy),
    el("pre", { translate: "no", tabindex: "0" }, el("code", { text: code })),
    el("p", { class: "small", text: t("code.prints") }),
    el("pre", { translate: "no", tabindex: "0" }, el("samp", { text: output })),
  );
}
let list = null;
export function drawCards() {
  list ??= JSON.parse($("#examples").textContent);
  keepFocus($("#quiz-body"), () => redraw($("#quiz-body"), ...QUESTIONS.map(question)));
  redraw($("#code-body"), ...list.programs.map(program));
  redraw($("#examples-body"), ...list.examples.map(example));
}
