// Your own text in a live page: every key press is read at once; "write on" lets the model add tokens, one after another.
import { clamp, visible } from "./core.js";
import { ask, changesOf, live, liveText } from "./live.js";
import { $, button, el, num, redraw, set, slider, state, t } from "./ui.js";
import { docOf } from "./documents.js";
import { chance } from "./next.js";

const sampling = { temperature: 0.8, topK: 0, topP: 1, seed: 1, count: 60 };
let writing = null; // the number of the question that writes now

live.append = (piece) => setText(liveText() + (piece === "◆" ? "" : piece));
function setText(text) {
  // a text of one's own, its last token chosen
  $("#text").value = text;
  set({ ex: "own", text, t: 1e6, also: undefined });
}
function numberField(id, name, min, max, step) {
  const input = el("input", { type: "number", id, min, max, step, value: sampling[name] });
  input.addEventListener("change", () => {
    sampling[name] = clamp(Number(input.value) || 0, min, max);
    input.value = sampling[name];
  });
  return el("div", { class: "field" }, el("label", { class: "label", for: id, text: t(`write.${name}`) }), input);
}
export function drawWrite() {
  const box = $("#own-text");
  box.hidden = !live.on;
  if (!live.on) return;
  const area = el("textarea", { id: "text", rows: 3, spellcheck: "false", "aria-label": t("write.text") });
  area.value = liveText();
  area.addEventListener("input", () => {
    stopWriting();
    set({ ex: "own", text: area.value, t: 1e6, also: undefined });
  });
  const show = (x) => num(x, 2),
    move = (x) => (sampling.temperature = x);
  const heat = slider({
    id: "temperature",
    label: t("write.temperature"),
    min: 0,
    max: 2,
    step: 0.05,
    value: sampling.temperature,
    show,
    move,
  });
  const fields = [
    numberField("top-k", "topK", 0, 1e6, 1),
    numberField("top-p", "topP", 0.01, 1, 0.01),
    numberField("seed", "seed", 0, 1e9, 1),
    numberField("count", "count", 1, 2000, 1),
  ];
  const go = button(t("write.go"), () => (writing ? stopWriting() : writeOn()), { id: "write", class: "button main" });
  const how = el(
    "details",
    { class: "how" },
    el("summary", { text: t("write.how") }),
    el("div", { class: "row write-row" }, heat, ...fields),
  );
  redraw(
    box,
    area,
    el("div", { class: "row write-go" }, go, how),
    el("p", { class: "small", id: "write-note", role: "status" }),
    el("div", { id: "write-step", class: "small" }),
  );
}
export function showText() {
  // another example was chosen
  const area = $("#text");
  if (area && area.value !== liveText()) area.value = liveText();
}
export function stopWriting() {
  if (!writing) return;
  ask("stop", { id: writing });
  writing = null;
  $("#write").textContent = t("write.go");
}
async function writeOn() {
  const doc = docOf(state.ex, state.run),
    asked = { run: doc.run, text: liveText(), edit: changesOf(doc.model), ...sampling };
  $("#write").textContent = t("write.stop");
  let mine = 0;
  const answer = ask("write", asked, (step) => {
    if (writing === mine) showStep(step);
  });
  mine = writing = answer.number;
  const { written, why } = await answer;
  if (writing === mine) writing = null;
  if (!writing) $("#write").textContent = t("write.go");
  $("#write-note").textContent = t(`write.${why}`, { n: num(written, 0) });
}
function showStep({ text, token, p, shown, left }) {
  // the drawn token, among those that could be drawn
  setText(text);
  const chips = shown.map(([piece, q]) =>
    el(
      "span",
      { class: `chip${piece === token ? " drawn" : ""}` },
      el("bdi", { text: visible(piece) }),
      ` ${chance(q)}`,
    ),
  );
  const more = left > shown.length ? t("write.more", { n: num(left - shown.length, 0) }) : "";
  redraw($("#write-step"), t("write.step", { q: visible(token), p: chance(p) }), " ", ...chips, ` ${more}`);
}
