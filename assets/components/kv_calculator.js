// The calculator's sliders, its result and the formula with its numbers: repainted while a slider moves, told on release.

const TELL_GAP_MS = 150; // a held arrow key repeats faster than this
const OCTAVE_STEPS = 16; // of a slider whose scale is logarithmic

const calculators = new WeakMap();

export default function ({ data, parentElement, setStateValue }) {
  let calculator = calculators.get(parentElement);
  if (!calculator) {
    calculator = new Calculator(parentElement.querySelector(".kv_calculator"));
    calculators.set(parentElement, calculator);
  }
  calculator.update(data, setStateValue);
  return () => {
    clearTimeout(calculator.timer);
    cancelAnimationFrame(calculator.frame);
    calculators.delete(parentElement);
  };
}

// A slider's place and its value: linear in steps, or so many places an octave.
const SCALES = {
  linear: {
    place: (value, { step }) => value / step,
    value: (place, { step }) => place * step || 1,
  },
  log: {
    place: (value) => Math.log2(value) * OCTAVE_STEPS,
    value: (place) => Math.round(2 ** (place / OCTAVE_STEPS)),
  },
};

class Calculator {
  constructor(root) {
    this.root = root;
    this.serial = undefined;
    this.toldAt = 0;
  }

  update(data, setStateValue) {
    this.setStateValue = setStateValue;
    const before = this.data;
    this.data = data;
    const shape = JSON.stringify([data.words, data.fields, data.type_names, data.values.lengths !== null, data.terms]);
    const rebuilt = shape !== this.shape;
    if (before === undefined || data.serial !== this.serial) this.values = { ...data.values };
    if (rebuilt) this.build();
    if (rebuilt || data.serial !== this.serial) this.fill();
    this.shape = shape;
    this.serial = data.serial;
    for (const [name, row] of Object.entries(this.rows)) this.complain(row, data.errors[name] ?? "");
    this.paint();
  }

  // ---- building -------------------------------------------------------------------------------------------------

  build() {
    const { words, fields } = this.data;
    this.rows = {};
    const controls = element("div", "controls", { role: "group", "aria-label": words.controls });
    for (const field of fields) controls.append(this.buildRow(field));
    controls.append(this.buildTypes());
    this.total = element("output", "total", { "aria-live": "off" });
    this.exact = element("p", "exact");
    this.units = element("dl", "units");
    this.notes = element("div", "notes");
    this.refused = element("p", "refused", { role: "alert" });
    const result = element(
      "div", "result", { role: "group", "aria-label": words.result },
      element("span", "label", {}, words.result), this.total, this.exact, this.units, this.notes, this.refused,
    );
    this.formula = element("div", "formula", { role: "group", "aria-label": words.formula });
    this.root.replaceChildren(element("div", "top", {}, controls, result), this.formula);
  }

  buildRow(field) {
    const { name, symbol, label, scale, max } = field;
    const id = `calculator-${name}`;
    const slider = element("input", "slider", { type: "range", min: 0, step: 1, "aria-label": label });
    slider.max = Math.round(SCALES[scale].place(field.slider_max, field));
    slider.min = Math.round(SCALES[scale].place(1, field));
    const number = element("input", "number", {
      type: "text", inputmode: "numeric", id, "aria-describedby": `${id}-error`, autocomplete: "off", size: 9,
    });
    const error = element("p", "error", { id: `${id}-error`, role: "alert" });
    const row = (this.rows[name] = { field, slider, number, error });
    slider.addEventListener("input", () => this.slide(row));
    slider.addEventListener("change", () => this.tell());
    slider.addEventListener("keydown", (event) => this.nudge(event, row));
    slider.addEventListener("focus", () => this.point(name));
    slider.addEventListener("pointerdown", () => this.point(name));
    number.addEventListener("input", () => this.type(row, max));
    number.addEventListener("focus", () => this.point(name));
    number.addEventListener("change", () => this.tell());
    return element(
      "div", "row", {},
      element("label", "name", { for: id }, element("b", "", {}, symbol), label), slider, number, error,
    );
  }

  buildTypes() {
    const { words, type_names: names, types } = this.data;
    const slider = element("input", "slider", { type: "range", min: 0, max: names.length - 1, step: 1, "aria-label": words.element });
    const choice = element("select", "number", { id: "calculator-element", "aria-describedby": "calculator-element-error" });
    names.forEach((name, at) => choice.append(element("option", "", { value: at }, priced(types[name]))));
    const error = element("p", "error", { id: "calculator-element-error", role: "alert" });
    const row = (this.rows.element = { slider, number: choice, error, field: { name: "element" } });
    const take = (place) => {
      this.values.element = names[place];
      slider.value = choice.value = place;
      slider.setAttribute("aria-valuetext", names[place]);
      this.progress(row);
      this.soon();
    };
    row.fill = () => take(Math.max(names.indexOf(this.values.element), 0));
    slider.addEventListener("input", () => take(Number(slider.value)));
    choice.addEventListener("input", () => take(Number(choice.value)));
    for (const node of [slider, choice]) {
      node.addEventListener("change", () => this.tell());
      node.addEventListener("focus", () => this.point("element"));
      node.addEventListener("pointerdown", () => this.point("element"));
    }
    return element(
      "div", "row", {},
      element("label", "name", { for: "calculator-element" }, element("b", "", {}, "S"), words.element), slider, choice, error,
    );
  }

  // ---- moving ---------------------------------------------------------------------------------------------------

  fill() {
    for (const row of Object.values(this.rows)) {
      if (row.fill) row.fill();
      else this.put(row, this.values[row.field.name]);
    }
  }

  // A value into its field and its slider.
  put(row, value) {
    row.number.value = value;
    this.place(row, value);
  }

  place(row, value) {
    row.slider.value = Math.round(SCALES[row.field.scale].place(Math.max(value, 1), row.field));
    row.slider.setAttribute("aria-valuetext", grouped(value));
    this.progress(row);
  }

  progress(row) {
    const { min, max, value } = row.slider;
    row.slider.style.setProperty("--done", `${max === min ? 100 : (100 * (value - min)) / (max - min)}%`);
  }

  slide(row) {
    const value = SCALES[row.field.scale].value(Number(row.slider.value), row.field);
    this.values[row.field.name] = value;
    row.number.value = value;
    row.slider.setAttribute("aria-valuetext", grouped(value));
    this.progress(row);
    this.complain(row, "");
    this.soon();
  }

  // On a logarithmic scale several places stand for one small number: an arrow key moves on to the next number.
  nudge(event, row) {
    const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!way || row.field.scale !== "log") return;
    event.preventDefault();
    const { name, max } = row.field;
    const old = this.values[name];
    const scale = SCALES.log;
    let value = scale.value(Math.round(scale.place(old)) + way);
    if (way * (value - old) <= 0) value = old + way;
    this.values[name] = Math.min(Math.max(value, 1), max);
    this.put(row, this.values[name]);
    this.complain(row, "");
    this.soon();
    this.tell();
  }

  // What is typed counts when it is a whole number in its range; until then the last good picture stays.
  type(row, max) {
    const text = row.number.value.trim().replaceAll(",", "");
    const value = Number(text);
    const { words } = this.data;
    if (!/^[0-9]+$/.test(text) || value < 1 || value > max) {
      const values = { name: row.field.label, low: "1", high: grouped(max), value: text.slice(0, 30) || "—" };
      this.complain(row, fill(words.whole, values));
      return;
    }
    this.values[row.field.name] = value;
    this.place(row, value);
    this.complain(row, "");
    this.soon();
  }

  complain(row, sentence) {
    if (row.error.textContent !== sentence) row.error.textContent = sentence;
    row.number.setAttribute("aria-invalid", String(Boolean(sentence)));
  }

  // The factor of the formula that the reader is moving.
  point(name) {
    this.pointed = name;
    for (const cell of this.formula.querySelectorAll(".factor")) cell.classList.toggle("moved", cell.dataset.field === name);
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => this.paint());
  }

  // Tell the server what is set: at once, or when some time has passed since it was told last.
  tell() {
    clearTimeout(this.timer);
    const wait = this.toldAt + TELL_GAP_MS - performance.now();
    if (wait > 0) {
      this.timer = setTimeout(() => this.tell(), wait);
      return;
    }
    if (Object.values(this.rows).some((row) => row.number.getAttribute("aria-invalid") === "true")) return;
    if (this.frame !== undefined) this.paint(); // the bytes that are told are those of the values that are told
    this.toldAt = performance.now();
    const { lengths, ...values } = this.values;
    this.setStateValue("set", { serial: this.serial, values, bytes: this.bytes === undefined ? null : String(this.bytes) });
  }

  // ---- painting -------------------------------------------------------------------------------------------------

  get plan() {
    const { data, values } = this;
    const key = data.types[values.element] ?? data.types[data.values.element];
    const value = data.value_element ? data.types[data.value_element] : key;
    const { layers, kv_heads: heads, head_dim: width } = values;
    const plain = { kind: "attention", count: layers, kv_heads: heads, key_dim: width, value_dim: width };
    return {
      groups: data.plain ? [plain] : data.groups,
      types: [key, value],
      pairs: values.lengths ?? [[values.tokens, values.batch]],
      encoder: data.encoder_tokens,
      page: data.page_size,
      tp: data.tp,
    };
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    const plan = this.plan;
    let parts;
    try {
      parts = plan.groups.map((group) => groupBytes(group, plan));
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      this.bytes = undefined;
      this.refused.textContent = fill(this.data.words[refusal.sentence], refusal.values);
      this.root.classList.add("stale");
      return;
    }
    this.refused.textContent = "";
    this.root.classList.remove("stale");
    this.bytes = parts.reduce((sum, part) => sum + part, 0n);
    this.paintResult(plan);
    if (this.data.plain && plan.types[0] === plan.types[1] && !plan.types[0].across_heads) this.paintFactors(plan);
    else this.paintTerms(plan, parts);
  }

  paintResult(plan) {
    const { words } = this.data;
    this.total.textContent = readable(this.bytes);
    this.exact.textContent = fill(words.bytes, { n: grouped(this.bytes) });
    const cells = [BINARY, DECIMAL].flatMap((units) =>
      units.map(([name, unit]) => element("div", "", {}, element("dt", "", {}, name), element("dd", "", {}, decimal(this.bytes, unit)))),
    );
    this.units.replaceChildren(...cells);
    this.notes.replaceChildren(...this.comparisons(plan).map((text) => element("p", "", {}, text)));
  }

  // What one more token takes, and what a key-value head for each query head would take.
  comparisons(plan) {
    const { words, query_heads: queryHeads, plain } = this.data;
    if (!plain) return [];
    const one = totalBytes({ ...plan, pairs: [[1, 1]], page: 1 });
    const found = [fill(words.per_token, { size: readable(one), n: grouped(one) })];
    const heads = this.values.kv_heads;
    if (queryHeads > heads && queryHeads % plan.tp === 0) {
      const all = totalBytes({ ...plan, groups: [{ ...plan.groups[0], kv_heads: queryHeads }] });
      const saved = `${decimal((all - this.bytes) * 100n, all)} %`;
      found.push(fill(words.saved, { heads, all: queryHeads, size: readable(all), saved }));
    }
    return found;
  }

  // The six factors, each under its letter; what rounding, devices and lists do to one of them stands in its place.
  paintFactors({ types: [type], pairs, page, tp }) {
    const { words, fields } = this.data;
    const { layers, kv_heads: heads, head_dim: width, lengths } = this.values;
    const names = Object.fromEntries(fields.map((field) => [field.name, field.label]));
    const held = ([length, copies]) => ceilDivide(big(length), big(page)) * big(page) * big(copies);
    const positions = pairs.reduce((sum, pair) => sum + held(pair), 0n);
    const onDevice = headsOf(big(heads), big(tp));
    const factors = [
      ["", "2", "2", words.keys_and_values],
      ["layers", "L", grouped(layers), names.layers],
      ...(lengths
        ? [["lengths", "ΣT", grouped(positions), words.all_positions]]
        : [
            ["batch", "B", grouped(pairs[0][1]), names.batch],
            ["tokens", "T", grouped(positions / big(pairs[0][1])), page > 1 ? words.whole_pages : names.tokens],
          ]),
      ["kv_heads", "H_kv", grouped(onDevice), tp > 1 ? words.on_a_device : names.kv_heads],
      ["head_dim", "D_head", grouped(width), names.head_dim],
      ["element", "S", cost(type, width), words.element],
    ];
    this.formula.className = "formula factors";
    this.formula.replaceChildren(
      factor("", "M_KV", "", words.result),
      ...factors.flatMap((parts, at) => [element("span", "sign", { "aria-hidden": "true" }, at ? "·" : "="), factor(...parts)]),
      element("span", "sign", { "aria-hidden": "true" }, "="),
      factor("", "", grouped(this.bytes), words.unit),
    );
    this.point(this.pointed);
  }

  // One term a kind of layer, with its own bytes.
  paintTerms(plan, parts) {
    const { words, terms } = this.data;
    const rows = plan.groups.map((group, at) =>
      element(
        "tr", "", {},
        element("th", "", { scope: "row" }, fill(terms[group.kind], { n: grouped(group.count) })),
        element("td", "expression", {}, expression(group, plan, words)),
        element("td", "amount", {}, `= ${fill(words.bytes, { n: grouped(parts[at]) })}`),
      ),
    );
    this.formula.className = "formula";
    this.formula.replaceChildren(element("table", "", {}, ...rows));
  }
}

// ---- small things -----------------------------------------------------------------------------------------------

function factor(field, symbol, number, name) {
  const [letter, index] = symbol.split("_");
  const node = element("span", "factor", {});
  node.dataset.field = field;
  const letters = element("i", "", {}, letter);
  if (index) letters.append(element("sub", "", {}, index));
  node.append(letters, element("b", "", {}, number), element("small", "", {}, name));
  return node;
}

// Bytes a value: a fraction where a block carries its own scales, and what a head's row has on top, shared out.
function cost(type, width) {
  if (type.block > 1) return `${type.block_bytes}/${type.block}`;
  return type.row_bytes ? `${type.block_bytes} + ${type.row_bytes}/${width}` : String(type.block_bytes);
}

// A type with its bytes a value; a plus where a scale lies beside each head's values.
const priced = (type) => `${type.name} · ${type.block_bytes / type.block} B${type.row_bytes ? " +" : ""}`;

// The factors of one kind of layer, in the order of the plain formula.
function expression(group, plan, words) {
  const sequences = plan.pairs.reduce((sum, [, copies]) => sum + copies, 0);
  if (group.kind === "state") {
    const conv = `${grouped(group.conv_channels)} · ${group.conv_kernel} · ${plan.types[0].model_bytes}`;
    const state = `${conv} + ${grouped(group.recurrent_elements)} · 4`;
    return `${group.count} · ${sequences} · (${state})${plan.tp > 1 ? ` / ${plan.tp}` : ""}`;
  }
  if (!group.kv_heads) return "0";
  const latent = group.kind === "latent";
  const [key, value] = latent ? [plan.types[0], plan.types[0]] : plan.types;
  const heads = headsOf(big(group.kv_heads), big(plan.tp));
  const same = !latent && group.key_dim === group.value_dim && key === value;
  const width = `${group.key_dim} · ${cost(key, group.key_dim)}`;
  const both = `(${width} + ${group.value_dim} · ${cost(value, group.value_dim)})`;
  const row = same ? width : group.value_dim ? both : width;
  const parts = [...(same ? ["2"] : []), group.count, ...positions(group, plan, words)];
  if (!latent && group.kind !== "indexer") parts.push(grouped(heads));
  return `${parts.join(" · ")} · ${row}`;
}

// The sequences and positions of an expression: B · T, with what a window or pages make of T.
function positions(group, plan, words) {
  const kept = ([length, copies]) => positionsOf(group, length, plan.encoder, big(plan.page)) * big(copies);
  if (plan.pairs.length > 1) return [grouped(plan.pairs.reduce((sum, pair) => sum + kept(pair), 0n))];
  const [[length, copies]] = plan.pairs;
  const own = group.kind === "cross" ? plan.encoder : length;
  let text = grouped(own);
  if (group.window) text = `min(${text}, ${grouped(group.window)})`;
  if (plan.page > 1) text = `${words.pages}(${text})`;
  return [grouped(copies), text];
}
