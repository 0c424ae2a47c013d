// The settings: a slider and a number for each. A number that is not allowed stays where it was typed, with a sentence.

class Controls {
  // `moved` is called while something moves, `released` when it has come to rest.
  constructor({ moved, released }) {
    this.moved = moved;
    this.released = released;
  }

  build({ words, ranges, sliders, n_visible: nVisible }) {
    this.words = words;
    this.ranges = ranges;
    this.rows = sliders.map((slider) => this.row(...slider));
    this.modes = ["random", "greedy"].map((name) => this.modeButton(name));
    this.modeNote = element("p", "note");
    const mode = element("div", "segments", { role: "group", "aria-label": words.mode }, ...this.modes);
    const more = element("details", "more", {}, element("summary", "", {}, words.more));
    more.append(...this.rows.slice(nVisible).map((row) => row.node));
    const seen = this.rows.slice(0, nVisible).map((row) => row.node);
    return element("div", "controls", { role: "group", "aria-label": words.settings }, mode, this.modeNote, ...seen, more);
  }

  modeButton(name) {
    const button = element("button", "segment", { type: "button", "data-mode": name }, this.words[name]);
    button.addEventListener("click", () => {
      this.greedy = name === "greedy";
      this.showMode();
      this.moved();
      this.released();
    });
    return button;
  }

  row(name, low, high, step, off) {
    const slider = element("input", "slider", { type: "range", min: low, max: high, step, "aria-label": name });
    const field = element("input", "number", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": name });
    const error = element("p", "error", { role: "alert", id: `error-${name}` });
    const remark = element("p", "remark");
    const note = element("p", "note");
    const head = element("div", "head", {}, element("code", "", {}, name), field);
    const row = { name, low, high, off, slider, field, error, remark, note, text: "" };
    slider.addEventListener("input", () => {
      const value = Number(slider.value);
      row.field.value = off === null && value === high ? this.words.off : String(value);
      this.read(row);
      this.moved();
    });
    slider.addEventListener("change", () => this.released());
    field.addEventListener("focus", () => field.select());
    field.addEventListener("input", () => {
      this.read(row);
      this.moved();
    });
    field.addEventListener("change", () => this.released());
    field.addEventListener("keydown", (event) => this.onKey(event, row));
    field.setAttribute("aria-describedby", error.id);
    row.node = element("div", "control", { "data-name": name }, head, slider, error, remark, note);
    return row;
  }

  // Arrow keys move a typed number by the slider's step.
  onKey(event, row) {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    if (by > 0) row.slider.stepUp();
    else row.slider.stepDown();
    row.slider.dispatchEvent(new Event("input"));
    row.slider.dispatchEvent(new Event("change"));
  }

  show(settings) {
    this.base = settings;
    this.greedy = Boolean(settings.greedy);
    this.showMode();
    for (const row of this.rows) {
      const value = settings[row.name] ?? row.off;
      row.field.value = value === null ? this.words.off : String(value);
      this.read(row);
    }
  }

  showMode() {
    for (const button of this.modes) button.setAttribute("aria-pressed", String((button.dataset.mode === "greedy") === this.greedy));
  }

  showNotes(notes) {
    this.modeNote.textContent = notes[this.greedy ? "greedy" : "random"] ?? "";
    for (const row of this.rows) row.note.textContent = notes[row.name] ?? "";
  }

  // Take a row's typed text: its value, or the sentence that says what is wrong with it.
  read(row) {
    const text = row.field.value.trim();
    const isOff = text === "" || text === this.words.off;
    const value = isOff ? row.off : Number(text);
    row.wrong = isOff ? "" : this.wrong(row.name, text, value);
    row.error.textContent = row.wrong;
    row.field.setAttribute("aria-invalid", String(Boolean(row.wrong)));
    if (row.wrong) return;
    row.value = value;
    row.slider.value = value ?? row.high;
    const done = (100 * (Number(row.slider.value) - row.low)) / (row.high - row.low);
    row.slider.style.setProperty("--done", `${done}%`);
    row.slider.setAttribute("aria-valuetext", value === row.off ? `${value ?? ""} ${this.words.off}` : String(value));
    row.node.classList.toggle("is-off", value === row.off);
  }

  wrong(name, text, value) {
    const [low, high, whole] = this.ranges[name];
    const isNumber = Number.isFinite(value) && (!whole || Number.isInteger(value));
    if (isNumber && (low === null || value >= low) && (high === null || value <= high)) {
      return name === "repetition_penalty" && value === 0 ? this.words.above_zero : "";
    }
    const template = high !== null ? (whole ? "whole_between" : "between") : low !== null ? (whole ? "whole_least" : "least") : "number";
    return fill(this.words[template], { name, low, high, value: text });
  }

  // What a value does at its edge, said beside it.
  remark(size) {
    const said = {
      temperature: (value) => value <= 1e-5 && this.words.cold,
      top_p: (value) => value === 0 && this.words.p_zero,
      top_k: (value) => value > size && fill(this.words.k_large, { size: size.toLocaleString("en") }),
    };
    for (const row of this.rows) {
      const idle = this.greedy && DRAWING.has(row.name) && row.value !== row.off && this.words.greedy_off;
      row.remark.textContent = (!row.wrong && (said[row.name]?.(row.value) || idle)) || "";
    }
  }

  // The last value of each that was allowed.
  get settings() {
    return { ...this.base, greedy: this.greedy, ...Object.fromEntries(this.rows.map(({ name, value }) => [name, value])) };
  }
}
