// One head: its matrix, with zoom, beside the text, shaded by what a token reads or by who reads it.

const NAMED = 28; // so many tokens still fit beside an axis
const TICKS = 6;
const LEAST = 8; // positions a side when zoomed in fully
const DRAG = 6; // pixels from which on a press is a drag
const GAPS = 64; // so many cells a side still have lines between them
const LONGEST_TICK = 10;
const SHADES = 20;
const LONG = 800; // so many tokens fill their box on any screen
const REST_MS = 100; // what is out of sight can wait so long
const TELL_MS = 60; // a held arrow key repeats faster than this

const views = new WeakMap();

export default function ({ data, parentElement, setStateValue }) {
  let view = views.get(parentElement);
  if (!view) views.set(parentElement, (view = new HeadView(parentElement.querySelector(".head_view"))));
  view.update(data, setStateValue);
  return () => {
    view.close();
    views.delete(parentElement);
  };
}

class HeadView {
  constructor(root) {
    this.root = root;
    this.asked = 0; // counts what was asked of the server, so that a late answer does not undo what came after
    this.resized = new ResizeObserver(() => this.plot && this.paintMatrix());
  }

  update(data, setStateValue) {
    this.setStateValue = setStateValue;
    const before = this.data;
    if (before?.texts !== data.texts) this.texts = JSON.parse(data.texts);
    this.data = data;
    this.weights = floatsOf(data.weights);
    this.line = floatsOf(data.line);
    if (before?.run !== data.run || data.asked >= this.asked) {
      this.asked = data.asked;
      this.at = { focus: data.focus, side: data.side, queries: span(data.queries), keys: span(data.keys) };
    }
    if (before?.texts !== data.texts || JSON.stringify(before.words) !== JSON.stringify(data.words)) this.build();
    this.root.setAttribute("aria-label", data.title);
    this.colours = ramp(data.colours);
    this.paintMatrix();
    this.paintText();
  }

  close() {
    clearTimeout(this.rest);
    this.resized.disconnect();
  }

  get nPositions() {
    return this.texts.length;
  }

  // ---- building -------------------------------------------------------------------------------------------------

  build() {
    this.root.setAttribute("role", "group");
    this.root.replaceChildren(this.buildPlot(), this.buildText());
    this.resized.disconnect();
    this.resized.observe(this.plot);
  }

  buildPlot() {
    const { words } = this.data;
    this.canvas = element("canvas", "cells", { "aria-hidden": "true" });
    this.frame = element("div", "frame");
    this.band = element("div", "band", { hidden: "" });
    this.plot = element("div", "plot", { tabindex: 0, role: "img" }, this.canvas, this.frame, this.band);
    this.rows = element("div", "rows", { "aria-hidden": "true" });
    this.columns = element("div", "columns", { "aria-hidden": "true" });
    this.tip = element("div", "tip", { popover: "manual", role: "tooltip" });
    this.where = element("output", "where");
    this.buttons = ["in", "out", "whole"].map((name) => {
      const node = element("button", "tool", { type: "button", title: words[name], "aria-label": words[name] });
      node.textContent = { in: "+", out: "−", whole: words.whole }[name];
      node.addEventListener("click", () => this.zoom(name));
      return node;
    });
    this.listen();
    return element(
      "div",
      "left",
      {},
      element("div", "tools", {}, ...this.buttons, this.where),
      element("div", "box", {}, element("span", "of-rows", {}, words.query), this.rows, this.plot, this.columns),
      element("span", "of-columns", {}, words.key),
      this.buildLegend(),
      this.tip,
    );
  }

  buildLegend() {
    const { words } = this.data;
    this.bar = element("canvas", "bar", { "aria-hidden": "true" });
    this.most = element("span");
    return element("div", "legend", {}, "0%", this.bar, this.most, element("i", "hidden"), words.hidden);
  }

  buildText() {
    const { words } = this.data;
    this.sides = ["reads", "read_by"].map((side) => {
      const node = element("button", "side", { type: "button", "data-side": side }, words[side]);
      node.addEventListener("click", () => this.tell({ side }));
      return node;
    });
    this.text = element("div", this.texts.length > LONG ? "text long" : "text", { role: "listbox", tabindex: 0, "aria-label": words.text, dir: "ltr" });
    this.chips = this.texts.map((text, at) => {
      const node = element("span", "chip", { role: "option", id: `reads-${at}`, "aria-selected": "false" });
      node.textContent = text || "∅";
      return node;
    });
    this.chips[this.data.n_prompt]?.classList.add("begins");
    this.text.append(...this.chips);
    this.text.addEventListener("pointerover", (event) => this.name(event.target.closest(".chip")));
    this.text.addEventListener("click", (event) => {
      const chip = event.target.closest(".chip");
      if (chip) this.tell({ focus: Number(chip.id.slice("reads-".length)) });
    });
    this.text.addEventListener("keydown", (event) => this.onTextKey(event));
    this.top = element("ol", "top");
    const sides = element("div", "sides", { role: "group" }, ...this.sides);
    return element("div", "right", {}, sides, this.text, element("p", "", {}, words.strongest), this.top);
  }

  // A chip's weight is told when the pointer comes to it.
  name(chip) {
    if (!chip) return;
    const at = Number(chip.id.slice("reads-".length));
    chip.title = `${at} · ${Number.isNaN(this.line[at]) ? this.data.words.hidden : percent(this.line[at])}`;
  }

  // ---- painting -------------------------------------------------------------------------------------------------

  paintMatrix() {
    const { queries, keys, words } = this.data;
    const [n, m] = [cells(queries), cells(keys)];
    let top = 0;
    for (const value of this.weights) if (value > top) top = value;
    top ||= 1;
    const shade = (value) => (Number.isNaN(value) ? undefined : Math.round(255 * Math.sqrt(value / top)));
    paint(this.canvas, n, m, this.colours, (i) => shade(this.weights[i]));
    this.plot.classList.toggle("lined", n <= GAPS && m <= GAPS);
    this.plot.style.setProperty("--rows", n);
    this.plot.style.setProperty("--columns", m);
    this.ticks(this.rows, queries, "top");
    this.ticks(this.columns, keys, "left");
    this.paintFrame();
    this.most.textContent = percent(top);
    paint(this.bar, 1, 256, this.colours, (i) => Math.round(Math.sqrt(i * 255)));
    this.where.textContent = fill(queries.cell * keys.cell > 1 ? words.pooled : words.exact, {
      queries: `${queries.start}–${queries.stop - 1}`,
      keys: `${keys.start}–${keys.stop - 1}`,
      cell: `${queries.cell} × ${keys.cell}`,
    });
    this.buttons[0].disabled = queries.stop - queries.start <= LEAST && keys.stop - keys.start <= LEAST;
    this.buttons[1].disabled = this.buttons[2].disabled = [queries, keys].every((s) => s.stop - s.start === this.nPositions);
    this.plot.setAttribute("aria-label", `${this.where.textContent}. ${words.keys_help}`);
  }

  // The line of the focus: a row where it reads, a column where it is read.
  paintFrame() {
    const axis = this.at.side === "reads" ? this.data.queries : this.data.keys;
    const at = Math.floor((this.at.focus - axis.start) / axis.cell);
    this.frame.hidden = at < 0 || at >= cells(axis);
    const share = (value) => `${(100 * value) / cells(axis)}%`;
    const along = this.at.side === "reads" ? { top: share(at), height: share(1), left: 0, width: "100%" } : { left: share(at), width: share(1), top: 0, height: "100%" };
    Object.assign(this.frame.style, along);
  }

  ticks(box, axis, edge) {
    const n = cells(axis);
    const named = n <= NAMED && axis.cell === 1;
    const every = named ? 1 : Math.max(1, nice((axis.stop - axis.start) / TICKS));
    const marks = [];
    for (let at = Math.ceil(axis.start / every) * every; at < axis.stop; at += every) {
      const mark = element("span", named ? "mark" : "mark number", {}, named ? shorten(this.texts[at]) : String(at));
      mark.style[edge] = `${(100 * ((at - axis.start) / axis.cell + 0.5)) / n}%`;
      marks.push(mark);
    }
    box.classList.toggle("named", named);
    box.replaceChildren(...marks);
  }

  paintText() {
    const { top } = this.data;
    const { focus, side } = this.at;
    const most = top.length ? this.line[top[0]] || 1 : 1;
    this.shade(...this.inSight(), most);
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.shade(0, this.chips.length, most), REST_MS);
    this.mark(focus);
    this.text.setAttribute("aria-activedescendant", `reads-${focus}`);
    if (this.inView !== this.chips[focus]) keepInView(this.text, (this.inView = this.chips[focus])); // lays the page out
    for (const node of this.sides) node.setAttribute("aria-pressed", String(node.dataset.side === side));
    this.top.replaceChildren(...top.map((at) => this.entry(at, most)));
  }

  // The tint of some chips: of thousands only those that change are touched, and those in sight before the rest.
  shade(from, to, most) {
    for (let at = from; at < to; at += 1) {
      const [chip, weight] = [this.chips[at], this.line[at]];
      const look = Number.isNaN(weight) ? "hidden" : (Math.round(SHADES * Math.sqrt(weight / most)) / SHADES).toFixed(2);
      if (chip.look === look) continue;
      chip.look = look;
      chip.classList.toggle("hidden", look === "hidden");
      chip.style.setProperty("--share", look === "hidden" ? 0 : look);
    }
  }

  // The first of the chips that can be seen, and the one after the last.
  inSight() {
    const { top, bottom } = this.text.getBoundingClientRect();
    const firstThat = (holds) => {
      let [low, high] = [0, this.chips.length];
      while (low < high) {
        const at = (low + high) >> 1;
        if (holds(this.chips[at].getBoundingClientRect())) high = at;
        else low = at + 1;
      }
      return low;
    };
    return [firstThat((box) => box.bottom >= top), firstThat((box) => box.top > bottom)];
  }

  mark(focus) {
    this.marked?.classList.remove("focus");
    this.marked?.setAttribute("aria-selected", "false");
    this.marked = this.chips[focus];
    this.marked.classList.add("focus");
    this.marked.setAttribute("aria-selected", "true");
  }

  entry(at, most) {
    const bar = element("i");
    bar.style.width = `${(100 * this.line[at]) / most}%`;
    const name = element("b", "", {}, this.texts[at] || "∅");
    const place = element("span", "place", {}, String(at));
    return element("li", "", {}, place, name, element("em", "", {}, bar), element("span", "share", {}, percent(this.line[at])));
  }

  // ---- pointing -------------------------------------------------------------------------------------------------

  listen() {
    this.plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      this.start = this.point(event);
      this.plot.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener("pointermove", (event) => this.onMove(event));
    this.plot.addEventListener("pointerup", (event) => this.onUp(event));
    this.plot.addEventListener("pointercancel", () => this.drop());
    this.plot.addEventListener("pointerleave", () => this.tip.hidePopover());
    this.plot.addEventListener("dblclick", () => this.zoom("whole"));
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
  }

  // Where the pointer is: pixels, and the cell under it.
  point(event) {
    const box = this.plot.getBoundingClientRect();
    const x = Math.min(Math.max(event.clientX - box.left, 0), box.width - 0.01);
    const y = Math.min(Math.max(event.clientY - box.top, 0), box.height - 0.01);
    const { queries, keys } = this.data;
    return { x, y, row: Math.floor((y / box.height) * cells(queries)), column: Math.floor((x / box.width) * cells(keys)) };
  }

  onMove(event) {
    const now = this.point(event);
    if (this.start && this.dragged(now)) {
      const [left, top] = [Math.min(now.x, this.start.x), Math.min(now.y, this.start.y)];
      const size = [Math.abs(now.x - this.start.x), Math.abs(now.y - this.start.y)];
      Object.assign(this.band.style, { left: `${left}px`, top: `${top}px`, width: `${size[0]}px`, height: `${size[1]}px` });
      this.band.hidden = false;
      this.tip.hidePopover();
    } else {
      this.showTip(event, now);
    }
  }

  dragged(now) {
    return Math.hypot(now.x - this.start.x, now.y - this.start.y) > DRAG;
  }

  onUp(event) {
    if (!this.start) return;
    const [from, to] = [this.start, this.point(event)];
    const wasDrag = this.dragged(to);
    this.drop();
    const { queries, keys } = this.data;
    if (wasDrag) {
      this.tell({ queries: this.part(queries, from.row, to.row), keys: this.part(keys, from.column, to.column) });
    } else {
      this.tell({ focus: this.at.side === "reads" ? first(queries, to.row) : first(keys, to.column) });
    }
  }

  drop() {
    this.start = undefined;
    this.band.hidden = true;
  }

  // Positions between two cells of an axis, but never so few that nothing can be seen.
  part(axis, a, b) {
    const [low, high] = [first(axis, Math.min(a, b)), Math.min(first(axis, Math.max(a, b) + 1), axis.stop)];
    return this.around((low + high) / 2, Math.max(high - low, LEAST));
  }

  around(centre, length) {
    const size = Math.min(Math.max(Math.round(length), LEAST), this.nPositions);
    const start = Math.min(Math.max(Math.round(centre - size / 2), 0), this.nPositions - size);
    return [start, start + size];
  }

  showTip(event, { row, column }) {
    const { queries, keys, words } = this.data;
    const weight = this.weights[row * cells(keys) + column];
    const line = (word, axis, at) => element("div", "", {}, `${word} ${this.named(axis, at)}`);
    const most = queries.cell * keys.cell > 1 ? `${words.largest} ` : `${words.weight} `;
    const said = Number.isNaN(weight) ? words.hidden : most + percent(weight);
    this.tip.replaceChildren(line(words.query, queries, row), line(words.key, keys, column), element("b", "", {}, said));
    this.tip.showPopover();
    const { width, height } = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 4)}px`;
    this.tip.style.top = `${Math.min(event.clientY + 14, innerHeight - height - 4)}px`;
  }

  named(axis, cell) {
    const at = first(axis, cell);
    return axis.cell === 1 ? `${at} ${this.texts[at]}` : `${at}–${Math.min(at + axis.cell, axis.stop) - 1}`;
  }

  // ---- moving ---------------------------------------------------------------------------------------------------

  zoom(how) {
    const { queries, keys } = this.at;
    if (how === "whole") return this.tell({ queries: [0, this.nPositions], keys: [0, this.nPositions] });
    const factor = how === "in" ? 1 / 2 : 2;
    const rows = this.at.side === "reads" ? this.at.focus : middle(queries);
    const columns = this.at.side === "reads" ? middle(keys) : this.at.focus;
    return this.tell({
      queries: this.around(how === "in" ? rows : middle(queries), factor * (queries[1] - queries[0])),
      keys: this.around(how === "in" ? columns : middle(keys), factor * (keys[1] - keys[0])),
    });
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const back = () => this.tell({ focus: this.at.focus - 1 });
    const on = () => this.tell({ focus: this.at.focus + 1 });
    const turn = () => this.tell({ side: this.at.side === "reads" ? "read_by" : "reads" });
    const actions = {
      ArrowUp: back, ArrowLeft: back, ArrowDown: on, ArrowRight: on, Enter: turn,
      "+": () => this.zoom("in"), "=": () => this.zoom("in"), "-": () => this.zoom("out"), 0: () => this.zoom("whole"),
    };
    this.act(event, actions);
  }

  onTextKey(event) {
    const to = (focus) => () => this.tell({ focus });
    const last = this.nPositions - 1;
    this.act(event, { ArrowLeft: to(this.at.focus - 1), ArrowRight: to(this.at.focus + 1), Home: to(0), End: to(last) });
  }

  act(event, actions) {
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  // Show at once what can be, and ask the server for the rest.
  tell(change) {
    const at = { ...this.at, ...change };
    at.focus = Math.min(Math.max(at.focus, 0), this.nPositions - 1);
    this.at = at;
    this.paintFrame();
    this.mark(at.focus);
    this.asked += 1;
    clearTimeout(this.timer);
    const wait = Math.max(0, (this.toldAt ?? 0) + TELL_MS - performance.now());
    this.timer = setTimeout(() => {
      this.toldAt = performance.now();
      this.setStateValue("at", { ...at, run: this.data.run, asked: this.asked });
    }, wait);
  }
}

// ---- small things -----------------------------------------------------------------------------------------------

const span = (axis) => [axis.start, axis.stop];
const cells = (axis) => Math.ceil((axis.stop - axis.start) / axis.cell);
const first = (axis, cell) => axis.start + cell * axis.cell;
const middle = ([start, stop]) => (start + stop) / 2;
const shorten = (text) => ([...text].length > LONGEST_TICK ? `${[...text].slice(0, LONGEST_TICK - 1).join("")}…` : text);

// A weight for people; never a 0 that is none.
function percent(share) {
  if (share && share < 1e-4) return "<0.01%";
  return `${(100 * share).toFixed(share >= 0.1 || !share ? 1 : 2)}%`;
}

// The nearest of 1, 2, 5, 10, 20, … from above.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= value);
}

function keepInView(box, chip) {
  const outer = box.getBoundingClientRect();
  const inner = chip.getBoundingClientRect();
  if (inner.top < outer.top) box.scrollTop += inner.top - outer.top - 12;
  if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom + 12;
}
