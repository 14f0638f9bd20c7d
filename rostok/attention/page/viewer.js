// The main viewer: a strip of tokens, the map of one head, and what the chosen token takes from whom.
import { arc, clamp, spaced, visible } from "./core.js";
import {
  $,
  button,
  css,
  el,
  has,
  keepFocus,
  num,
  percent,
  picker,
  press,
  rampCss,
  rampInk,
  rampPixel,
  redraw,
  saveBlob,
  saveButtons,
  segment,
  set,
  shade,
  state,
  sv,
  t,
} from "./ui.js";
import { docOf, headName, maps, quoted, runTitle, runs, textTitle, texts } from "./documents.js";
import { chance, drawNext, named } from "./next.js";
import { alsoWords, askedRow, askedShares, askedTops, askers } from "./asked.js";
import { keysOf } from "./kinds.js";
import { drawAllKeys, drawKeys } from "./listens.js";
import { closedTo, live, toggleKey } from "./live.js";
import { twoFigures, viewFigure } from "./figure.js";

// ---- one panel: a run, a layer, a head
const SUFFIX = { a: "", b: "2" };
export class Panel {
  constructor(which) {
    this.which = which;
    this.s = SUFFIX[which];
    this.root = el("div", { class: "panel", "data-panel": which });
    this.top = el("div", { class: "controls" });
    this.arcs = sv("svg", { class: "arcs", "aria-hidden": "true" });
    this.strip = el("div", {
      class: "strip",
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-orientation": "horizontal",
      id: `strip-${which}`,
    });
    this.scroller = el("div", { class: "scroller" }, el("div", { class: "sheet" }, this.arcs, this.strip));
    this.canvas = el("canvas", { role: "img", class: "map", id: `map-${which}` });
    this.marks = el("div", { "aria-hidden": "true" });
    this.legend = el("div", { class: "legend", "aria-hidden": "true" });
    this.mapNote = el("p", { class: "small" });
    this.read = el("div", { class: "readout", id: `readout-${which}` });
    this.facts = el("div", { class: "token-facts", id: `token-${which}` });
    this.next = el("div", { class: "next", id: `next-${which}` });
    this.keys = el("div", { class: "keys" });
    this.full = el("details", { class: "full" });
    this.beyond = el("p", { class: "callout lost", role: "status", hidden: true });
    this.root.append(
      this.top,
      this.beyond,
      el(
        "div",
        { class: "look" },
        el("div", { class: "left" }, this.scroller, this.next, this.read, this.keys),
        el(
          "div",
          { class: "beside" },
          el("div", { class: "map-frame" }, this.canvas, this.marks),
          this.legend,
          this.mapNote,
          this.facts,
        ),
      ),
      this.full,
    );
    this.#listen();
  }
  get doc() {
    return docOf(state.ex, state[`run${this.s}`]);
  }
  get layer() {
    return clamp(state[`l${this.s}`] ?? 0, 0, Math.max(0, this.doc.model.n_layer - 1));
  }
  get head() {
    return clamp(state[`h${this.s}`] ?? 0, 0, Math.max(0, this.doc.model.n_head - 1));
  }
  get mode() {
    return this.doc.losses ? state.under : "weight";
  }
  get token() {
    return clamp(state.t, 0, this.doc.text.T - 1);
  }
  row() {
    return askedRow(this);
  }
  tops(k = 8) {
    return askedTops(this, k);
  }
  pick(l, h) {
    set({ [`l${this.s}`]: l, [`h${this.s}`]: h });
  }

  add(j) {
    // Shift and a click: one more token that asks, or one fewer
    const [, ...also] = askers(this);
    if (j !== this.token) set({ also: alsoWords(also.includes(j) ? also.filter((q) => q !== j) : [...also, j]) });
  }

  #listen() {
    const at = (e) => e.target.closest?.(".tok");
    this.strip.addEventListener("click", (e) => {
      const tok = at(e);
      if (tok && e.shiftKey) this.add(Number(tok.dataset.t));
      else if (tok) set({ t: Number(tok.dataset.t), pin: undefined, also: undefined });
    });
    this.strip.addEventListener("pointerover", (e) => {
      const tok = at(e);
      if (tok) tok.title = this.#about(Number(tok.dataset.t));
      if (tok && state.pin === 0 && Number(tok.dataset.t) !== state.t) set({ t: Number(tok.dataset.t) });
    });
    const cell = (e) => {
      const box = this.canvas.getBoundingClientRect(),
        T = this.doc.text.T;
      return [((e.clientY - box.top) / box.height) * T, ((e.clientX - box.left) / box.width) * T].map((x) =>
        clamp(Math.floor(x), 0, T - 1),
      );
    };
    this.canvas.addEventListener("click", (e) => set({ t: cell(e)[0], pin: undefined, also: undefined }));
    this.canvas.addEventListener("dblclick", (e) => {
      const [q, k] = cell(e);
      if (live.on && k <= q) toggleKey(q, k);
    });
    this.canvas.addEventListener("pointermove", (e) => {
      const [q, k] = cell(e);
      this.mapNote.textContent =
        k > q || closedTo(this.doc, q).includes(k)
          ? t(k > q ? "map.closed" : "map.shut", { q: quoted(this.doc, q), k: quoted(this.doc, k) })
          : t("map.cell", {
              q: quoted(this.doc, q),
              k: quoted(this.doc, k),
              w: num(this.doc.weights.row(this.layer, this.head, q)[k], 3),
            });
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.mapNote.textContent = t(live.on ? "map.hint.live" : "map.hint");
    });
    this.scroller.addEventListener("scroll", () => {
      if (this.stale) this.dress(...this.inSight());
    });
    new ResizeObserver(() => {
      this.places = null;
      this.arcsSoon();
    }).observe(this.strip);
  }

  #about(j) {
    // under the mouse: the token's number, and its weight where the chosen token sees it
    const weight = maps(this.doc) && j < this.now.length ? `: ${num(this.now[j], 4)}` : "";
    return t("token.place", { n: j }) + weight;
  }
  controls() {
    const m = this.doc.model,
      list = runs(),
      about = [state.lang, state.ex, m.name].join();
    if (this.about === about) {
      // the same buttons: press others
      press(this.top, t("layer"), this.layer);
      press(this.top, t("head"), this.head);
      this.top.lastChild.replaceWith(this.label());
      return;
    }
    this.about = about;
    redraw(
      this.top,
      list.length > 1
        ? picker(
            t("run"),
            list.map((r) => [r, runTitle(r)]),
            m.name,
            (run) => set({ [`run${this.s}`]: run }),
          )
        : null,
      segment(
        t("layer"),
        Array.from({ length: m.n_layer }, (_, i) => [i, String(i + 1)]),
        this.layer,
        (l) => this.pick(l, this.head),
      ),
      segment(
        t("head"),
        Array.from({ length: m.n_head }, (_, i) => [i, String(i + 1)]),
        this.head,
        (h) => this.pick(this.layer, h),
      ),
      this.label(),
    );
  }
  label() {
    const head = this.doc.heads?.find((x) => x.layer === this.layer && x.head === this.head);
    if (!head) return el("p", { class: "kind" }); // kinds come after the maps
    const kind = [head.label].flat()[0],
      score = head.scores?.[kind];
    const base = score && num(score.base ?? this.doc.even[kind], 2);
    return el(
      "p",
      { class: "kind" },
      el("b", { text: t(`kind.${kind}`) }),
      " ",
      t(`kind.${kind}.what`),
      score ? ` ${t("kind.score", { v: num(score.v, 2), base })}` : "",
      this.#unlike(kind),
    );
  }
  // The kind is a mean over the text; where this row looks elsewhere, say so.
  #unlike(kind) {
    const [best, weight] = this.tops(1)[0] ?? [];
    if (kind === "other" || best === undefined || this.token < 2) return "";
    const keys = keysOf(this.doc.text.ids, this.doc.text.ids[0], this.token)[kind];
    return keys.includes(best) ? "" : ` ${t("kind.here", { k: quoted(this.doc, best), w: num(weight, 2) })}`;
  }

  // Another text, run or language. Tokens at the beginning that are the same stay what they are.
  draw() {
    const { doc } = this,
      same = [state.lang, doc.model.name].join(),
      old = this.drawn === same ? this.pieces : [];
    let keep = 0;
    while (keep < old.length && old[keep] === doc.text.pieces[keep]) keep++;
    for (const node of (this.nodes ?? []).splice(keep).flat()) node.remove();
    const added = doc.shown.slice(keep).map((text, i) => this.#token(text, keep + i));
    this.nodes = [...(this.nodes ?? []), ...added];
    this.strip.append(...added.flat());
    this.toks = this.nodes.map(([tok]) => tok);
    Object.assign(this, { drawn: same, pieces: doc.text.pieces, last: null, about: null, places: null });
    this.strip.setAttribute("aria-label", t("strip.label"));
    this.strip.dataset.under = this.mode;
    this.root.classList.toggle("no-maps", !maps(doc));
    this.mapNote.textContent = t(live.on ? "map.hint.live" : "map.hint");
    this.paintLegend();
    this.update();
  }
  #token(text, j) {
    // [token] or [token, line break]: a line break in the text is one in the strip
    const piece = this.doc.text.pieces[j],
      kind = `tok${spaced(piece) ? " sp" : ""}${this.doc.text.start[j] ? " start" : ""}`;
    const look = { class: kind, role: "option", tabindex: "-1", "data-t": j, id: `tok-${this.which}-${j}` };
    const tok = el("span", look, el("bdi", { text, class: text.length > 16 ? "long" : null }), el("small", {}));
    tok.now = {};
    return piece.includes("\n") ? [tok, el("br")] : [tok];
  }
  paintLegend() {
    const bar = el("span", { class: "bar-legend" });
    bar.style.background = `linear-gradient(90deg, ${Array.from({ length: 9 }, (_, i) => rampCss(Math.round((i * 255) / 8))).join(",")})`;
    redraw(
      this.legend,
      bar,
      el(
        "span",
        { class: "ticks" },
        ...[0, 0.1, 0.25, 0.5, 1].map((w) =>
          el("span", {
            text: num(w, w === 0 || w === 1 ? 0 : w === 0.25 ? 2 : 1),
            style: { left: `${100 * Math.sqrt(w)}%` },
          }),
        ),
      ),
    );
  }

  // Another token, layer or head: only what changes with it.
  update() {
    const { token } = this,
      row = this.row(),
      first = !this.last;
    const held = this.strip.contains(document.activeElement);
    this.now = row;
    if (this.strip.dataset.under !== this.mode) {
      this.strip.dataset.under = this.mode;
      this.places = null;
    }
    this.stale = !first; // a click: what is in sight now, the other tokens after it is painted
    if (first) this.dress(0, this.toks.length);
    else {
      this.bring();
      this.dress(...this.inSight());
    }
    keepFocus(this.top, () => this.controls());
    this.scroller.classList.toggle("follow", state.pin === 0); // the mouse chooses
    this.map();
    this.shares();
    drawKeys(this);
    drawAllKeys(this);
    this.tokenFacts();
    drawNext(this);
    this.beyond.hidden = state.t < this.doc.text.T;
    this.beyond.textContent = t("beyond", {
      run: runTitle(this.doc.model.name),
      n: num(this.doc.text.T, 0),
      t: num(state.t, 0),
    });
    if (held) this.toks[token].focus({ preventScroll: true });
    if (first) this.fresh = true;
    this.arcsSoon();
  }
  // Where each token stands in the strip; measured once, for asking makes the browser lay out.
  where() {
    this.places ??= this.toks.map((k) => ({
      x: k.offsetLeft + k.offsetWidth / 2,
      y: k.offsetTop + 1,
      high: k.offsetHeight,
    }));
    return this.places;
  }
  inSight() {
    // from, to: the tokens that the strip's window shows, and a line more
    const places = this.where(),
      top = this.scroller.scrollTop - 60,
      bottom = this.scroller.scrollTop + this.scroller.clientHeight + 60;
    const from = places.findIndex((p) => p.y + p.high > top),
      to = places.findLastIndex((p) => p.y < bottom) + 1;
    return [Math.max(0, from), to];
  }
  dressRest() {
    if (this.stale) this.dress(0, this.toks.length);
    this.stale = false;
  }
  // The tokens from..to in the colours, bars and numbers of this row; only what is not so already is written.
  dress(from, to) {
    const { doc, token, now: row, mode } = this;
    const closed = closedTo(doc, token),
      asking = askers(this);
    const wear = (tok, j) => {
      const future = j >= row.length || closed.includes(j), // later, or closed by hand
        w = future ? 0 : row[j],
        now = tok.now;
      const next = {
        future,
        code: future ? -1 : shade(w),
        below: this.under(mode, j, w, future),
        chosen: asking.includes(j),
        seen: mode === "seen" && ["seen", "pair"].includes(doc.losses?.class[j]),
      };
      if (now.future !== future) {
        tok.classList.toggle("future", future);
        if (future) tok.setAttribute("aria-label", t("token.closed", { q: doc.shown[j] }));
        else tok.removeAttribute("aria-label");
      }
      if (now.seen !== next.seen) tok.classList.toggle("seen", next.seen);
      if (now.code !== next.code) {
        tok.style.backgroundColor = next.code > 0 ? rampCss(next.code) : "";
        tok.style.color = next.code > 0 ? rampInk(next.code) : "";
      }
      if (now.below !== next.below) tok.children[1].textContent = next.below;
      if (now.chosen !== next.chosen) {
        tok.setAttribute("aria-selected", String(next.chosen));
      }
      const stop = j === token ? 0 : -1;
      if (tok.tabIndex !== stop) tok.tabIndex = stop;
      tok.now = next;
    };
    for (let j = from; j < to; j++) wear(this.toks[j], j);
    for (const j of [...(this.chosen ?? []), ...asking])
      if (j < this.toks.length && !(from <= j && j < to)) wear(this.toks[j], j);
    this.chosen = asking;
  }
  under(mode, j, w, future) {
    const { losses, before } = this.doc;
    if (mode === "weight") return future ? "–" : w >= 0.005 ? num(w, 2) : "";
    if (losses.p[j] === null) return "";
    if (mode === "p") return percent(losses.p[j], losses.p[j] < 0.1 ? 1 : 0);
    if (mode === "rank") return `${losses.rank[j]}`;
    if (mode === "loss") return num(losses.nll[j], 1);
    if (mode === "change") return before ? plus(losses.nll[j] - before.nll[j]) : "";
    if (mode === "other") return this.beside(j);
    return t(`class.${losses.class[j]}`);
  }
  beside(j) {
    // this run's loss less the other's, on the same token
    const own = this.doc,
      other = (this.which === "a" ? panels.b : panels.a)?.doc;
    if (state.cmp !== 1 || !other?.losses || other.text.ids[j] !== own.text.ids[j] || j >= other.text.T) return "";
    return plus(own.losses.nll[j] - other.losses.nll[j]);
  }
  bring() {
    // keep the chosen token in sight inside the strip, without moving the page
    const { y: top, high } = this.where()[this.token],
      bottom = top + high,
      box = this.scroller;
    if (top < box.scrollTop + 20 || bottom > box.scrollTop + box.clientHeight)
      box.scrollTop = Math.max(0, top - box.clientHeight / 2);
  }
  arcsSoon() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      // the browser lays out now anyway
      if (this.fresh) this.bring();
      this.fresh = false;
      this.drawArcs();
    });
  }
  drawArcs() {
    if (!this.toks) return;
    const places = this.where(),
      many = askers(this).length > 1;
    const path = (q, [j, w]) =>
      sv("path", {
        d: arc(places[q], places[j]),
        "data-key": j,
        "stroke-width": (1 + 4 * w).toFixed(2),
        opacity: (places[j].y === places[q].y ? 0.25 + 0.7 * Math.sqrt(w) : 0.2 + 0.4 * Math.sqrt(w)).toFixed(2),
      });
    const from = (q) =>
      (many ? this.doc.weights.top(this.layer, this.head, q) : this.tops()).filter(([, w]) => w >= 0.02);
    redraw(this.arcs, ...askers(this).flatMap((q) => from(q).reverse().map((key) => path(q, key)))); // prettier-ignore
  }
  paint(canvas, cell = 1) {
    // the lower triangle of this head, a square of `cell` pixels a weight; the rest is clear
    const { T } = this.doc.weights,
      tile = this.doc.weights.tile(this.layer, this.head),
      n = T * cell,
      image = new ImageData(n, n),
      out = new Uint32Array(image.data.buffer);
    for (let y = 0, i = 0; y < n; y++, i += n) {
      const q = Math.floor(y / cell),
        row = (q * (q + 1)) / 2;
      const code = this.#codes(tile, row, q),
        closed = closedTo(this.doc, q); // clear, so that the hatch of what is not seen shows through
      for (let k = 0; k <= q; k++)
        if (!closed.includes(k)) out.fill(rampPixel(code(k)), i + k * cell, i + (k + 1) * cell);
    }
    canvas.width = canvas.height = n;
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
  #codes(tile, row, q) {
    // the byte of key k; without ◆ the others of the row are scaled up
    if (state.hide !== 1) return (k) => tile[row + k];
    const { start } = this.doc.text;
    let kept = 0;
    for (let k = 0; k <= q; k++) if (!start[k]) kept += (tile[row + k] / 255) ** 2;
    const up = kept > 1e-6 ? 1 / Math.sqrt(kept) : 0;
    return (k) => (start[k] ? 0 : Math.min(255, Math.round(tile[row + k] * up)));
  }
  map() {
    const { T } = this.doc.text,
      { token } = this,
      last = [this.doc, this.layer, this.head, css("--ramp2"), state.hide];
    if (!this.last || last.some((x, i) => x !== this.last[i])) {
      this.paint(this.canvas);
      this.canvas.classList.toggle("crisp", T <= 280);
      this.last = last;
    }
    const mark = (q) => {
      const at = { top: q / T, width: (q + 1) / T, height: 1 / T },
        style = Object.fromEntries(Object.entries(at).map(([k, x]) => [k, `${100 * x}%`]));
      return el("span", { class: "map-mark", style });
    };
    redraw(this.marks, ...askers(this).map(mark));
    const top = this.tops(2)
      .map(([j, w]) => `${quoted(this.doc, j)} ${num(w, 3)}`)
      .join(", ");
    this.canvas.setAttribute(
      "aria-label",
      t("map.label", { head: headName(this.layer, this.head), q: quoted(this.doc, token), top }),
    );
  }
  shares() {
    const r = askedShares(this),
      parts = ["start", "previous", "self", "other", "future"];
    this.values = r;
    redraw(
      this.read,
      el(
        "div",
        { class: "stack", "aria-hidden": "true" },
        ...parts.slice(0, 4).map((k) => el("span", { class: `part ${k}`, style: { width: `${100 * r[k]}%` } })),
      ),
      el(
        "div",
        { class: "readings" },
        ...parts.map((k) =>
          el(
            "span",
            { class: "reading", "data-part": k },
            el("i", { class: `dot ${k}`, "aria-hidden": "true" }),
            t(`read.${k}`),
            " ",
            el("b", { text: k === "future" ? "0" : num(r[k], 3) }),
          ),
        ),
        el("span", { class: "reading sum", "data-part": "sum" }, t("read.sum"), " ", el("b", { text: num(r.sum, 3) })),
      ),
    );
  }
  tokenFacts() {
    const { doc, token } = this,
      { losses } = doc;
    const title = el("h3", { text: t("token.title", { q: quoted(doc, token), n: token }) });
    if (!losses) return redraw(this.facts, title, el("p", { class: "small", text: t("token.none") }));
    if (losses.p[token] === null) return redraw(this.facts, title, el("p", { class: "small", text: t("token.first") }));
    const fact = (k, v) => el("div", {}, el("dt", { text: t(k) }), el("dd", { text: v }));
    const facts = [fact("token.p", chance(losses.p[token])), fact("token.rank", num(losses.rank[token], 0))];
    const loss = fact("token.loss", t("nats", { x: num(losses.nll[token], 2) })),
      kind = fact("token.class", t(`class.${losses.class[token]}`));
    const expected = losses.top[token]
      .slice(0, 3)
      .flatMap(([piece, p]) => [el("bdi", { class: "chip", text: named(piece) }), ` ${percent(p, 0)}  `]);
    return redraw(
      this.facts,
      title,
      el("dl", { class: "mini" }, ...facts, loss, kind),
      el("p", { class: "small" }, t("token.expected"), " ", ...expected),
    );
  }
}
const plus = (x) => `${x > 0.005 ? "+" : ""}${num(x, 2)}`;

// ---- the two panels and what they share
export const panels = { a: null, b: null };
// The panel that thumbnails, step cards and the bar under the header speak of.
export const front = () => (state.cmp === 1 && state.of === "b" ? panels.b : panels.a);
export function drawViewer() {
  panels.a ??= new Panel("a");
  panels.b ??= new Panel("b");
  const box = $("#panels"),
    two = state.cmp === 1;
  box.classList.toggle("two-up", two);
  box.replaceChildren(...(two ? [panels.a.root, panels.b.root] : [panels.a.root]));
  viewerControls();
  for (const p of two ? [panels.a, panels.b] : [panels.a]) p.draw();
  announce();
}
export function updateViewer() {
  panels.a.update();
  if (state.cmp === 1) panels.b.update();
  announce();
}
export function finishViewer() {
  for (const p of state.cmp === 1 ? [panels.a, panels.b] : [panels.a]) p.dressRest();
}
const MODES = ["weight", "p", "rank", "loss", "change", "other", "seen"];
const modes = (doc) =>
  MODES.filter(
    (k) => (k !== "change" || doc.before) && (k !== "other" || (state.cmp === 1 && state.run2 !== state.run)),
  );
export function viewerControls() {
  const box = $("#viewer-controls"),
    { doc } = panels.a,
    two = state.cmp === 1;
  const name = () => `attention-${state.ex}-${panels.a.layer + 1}-${panels.a.head + 1}-${panels.a.token}`;
  const under = picker(
    t("under"),
    modes(doc).map((k) => [k, t(`under.${k}`)]),
    state.under,
    (value) => set({ under: value }),
  );
  const compare = button(t("compare"), () => set({ cmp: two ? undefined : 1 }), {
    "aria-pressed": String(two),
    id: "compare",
  });
  const hide = button(t("hide"), () => set({ hide: state.hide === 1 ? undefined : 1 }), {
    "aria-pressed": String(state.hide === 1),
    id: "hide",
    title: t("hide.what"),
  });
  const save = saveButtons(name, () => (state.cmp === 1 ? twoFigures(panels.a, panels.b) : viewFigure(panels.a)));
  const table = button("CSV", () => saveBlob(`${name()}.csv`, new Blob([csvOf(panels.a)], { type: "text/csv" })), {
    "aria-label": t("save.csv"),
  });
  keepFocus(box, () =>
    redraw(
      box,
      doc.losses ? under : null,
      el("div", { class: "field end" }, maps(doc) ? hide : null, compare, save, table),
    ),
  );
}
// The map of the chosen head, one line a pair; the losses where there are any.
function csvOf({ doc, layer, head }) {
  const quote = (text) => `"${text.replace(/"/g, '""')}"`,
    lines = ["query,key,query_piece,key_piece,weight,query_loss"];
  for (let q = 0; q < doc.text.T; q++) {
    const row = doc.weights.row(layer, head, q),
      loss = doc.losses?.nll[q] ?? "";
    row.forEach((w, k) =>
      lines.push([q, k, quote(doc.text.pieces[q]), quote(doc.text.pieces[k]), w.toFixed(6), loss].join()),
    );
  }
  return `${lines.join("\r\n")}\r\n`;
}
function announce() {
  const p = panels.a,
    r = p.values;
  if (!maps(p.doc)) return;
  const top = p
      .tops(3)
      .map(([j, w]) => `${quoted(p.doc, j)} ${num(w, 2)}`)
      .join(t("list.comma")),
    parts = ["start", "previous", "self", "other"];
  const vars = Object.fromEntries([...parts, "sum"].map((k) => [k, num(r[k], 3)]));
  $("#live").textContent = t("live", { head: headName(p.layer, p.head), q: quoted(p.doc, p.token), top, ...vars });
}
