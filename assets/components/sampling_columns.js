// The columns: a row a candidate, a column a step of the pipeline, in an order that can be changed.

const ROWS = 14;
const CHANGE_SCORES = new Set(["sequence_bias", "repetition_penalty", "frequency_penalty", "presence_penalty", "temperature"]);

class Columns {
  // `reorder(name, by)` moves a step over that many others; `put(name, before)` puts it before another, or last.
  constructor({ reorder, put, preset }) {
    Object.assign(this, { reorder, put, preset });
  }

  build({ words, orders }) {
    this.words = words;
    this.heads = "";
    this.presets = Object.keys(orders).map((name) => this.presetButton(name));
    this.own = element("span", "own", {}, words.own_order);
    this.sentence = element("p", "parts", { role: "status" });
    this.table = element("table", "columns", { "aria-label": words.columns });
    this.error = element("p", "error", { role: "alert" });
    const presets = element("div", "segments", { role: "group", "aria-label": words.order }, ...this.presets);
    const top = element("div", "order", {}, element("span", "label", {}, words.order), presets, this.own, this.sentence);
    this.scroller = element("div", "scroller", { tabindex: "0", role: "region", "aria-label": words.columns }, this.table);
    return element("div", "table", {}, top, this.error, this.scroller);
  }

  presetButton(name) {
    const button = element("button", "segment", { type: "button", "data-order": name }, name === "vllm" ? "vLLM" : name);
    button.addEventListener("click", () => this.preset(name));
    return button;
  }

  showOrder(order) {
    for (const button of this.presets) button.setAttribute("aria-pressed", String(button.dataset.order === order));
    this.own.hidden = typeof order === "string";
  }

  showError(text) {
    this.error.textContent = text;
    this.scroller.classList.toggle("stale", Boolean(text));
  }

  // `parting` is {name, text} where the order changes the result.
  show(stages, { label, recorded, hit, parting }) {
    this.frame(stages.map((stage) => stage.name));
    const { rows, found } = pick(stages, recorded, hit);
    this.head(stages, parting?.name);
    this.sentence.textContent = parting?.text ?? "";
    this.sentence.classList.toggle("differs", Boolean(parting?.name));
    rows.forEach((id, at) => this.fillRow(at, id, stages, found, { label, recorded, hit }));
    for (let at = rows.length; at < ROWS; at += 1) this.cells[at].row.hidden = true;
    this.fillOther(stages, found);
  }

  // ---- the table's frame: made again only when the steps are others ---------------------------------------------

  frame(names) {
    if (this.heads === names.join()) return;
    this.heads = names.join();
    const focused = this.table.getRootNode().activeElement?.dataset?.step;
    const { words } = this;
    this.headCells = names.map((name, at) => this.headCell(name, at, names));
    const corner = element("th", "corner", { scope: "col" }, words.token);
    const logit = element("th", "plain", { scope: "col" }, words.logit);
    const header = element("tr", "", {}, corner, logit, ...this.headCells.map((cell) => cell.node));
    this.cells = Array.from({ length: ROWS + 1 }, () => this.emptyRow(names));
    this.cells[ROWS].row.classList.add("other");
    this.table.replaceChildren(
      element("thead", "", {}, header),
      element("tbody", "", {}, ...this.cells.map((cell) => cell.row)),
    );
    if (focused) this.headCells.find((cell) => cell.node.dataset.step === focused)?.node.focus();
  }

  headCell(name, at, names) {
    const { words } = this;
    const movable = name !== "raw" && name !== "greedy";
    const title = element("span", "name", {}, name === "raw" ? words.raw : name);
    const count = element("small");
    const node = element("th", movable ? "movable" : "plain", { scope: "col" }, title, count);
    if (movable) this.makeMovable(node, name, title, names);
    if (at === names.length - 1 && at > 0) node.prepend(element("small", "last", {}, words.final));
    return { node, count };
  }

  makeMovable(node, name, title, names) {
    const { words } = this;
    const says = fill(words.move, { name });
    for (const [key, value] of Object.entries({ tabindex: "0", draggable: "true", title: says, "aria-label": says, "data-step": name })) {
      node.setAttribute(key, value);
    }
    const arrow = (text, word, by) => {
      const label = fill(words[word], { name });
      const button = element("button", "arrow", { type: "button", tabindex: "-1", "aria-label": label, title: label }, text);
      button.addEventListener("click", () => this.reorder(name, by));
      const steps = names.filter((step) => step !== "raw" && step !== "greedy");
      button.disabled = steps.at(by < 0 ? 0 : -1) === name;
      return button;
    };
    title.before(element("span", "arrows", {}, arrow("◂", "earlier", -1), arrow("▸", "later", 1)));
    node.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || !event.altKey) return;
      event.preventDefault();
      this.reorder(name, by);
    });
    node.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", name));
    node.addEventListener("dragover", (event) => {
      event.preventDefault();
      node.classList.add("over");
    });
    node.addEventListener("dragleave", () => node.classList.remove("over"));
    node.addEventListener("drop", (event) => {
      event.preventDefault();
      node.classList.remove("over");
      const box = node.getBoundingClientRect();
      const after = event.clientX > box.left + box.width / 2;
      this.put(event.dataTransfer.getData("text/plain"), name, after);
    });
  }

  emptyRow(names) {
    const mark = element("span", "mark");
    const token = element("span", "text");
    const logit = element("td", "logit");
    const tds = names.map(() => {
      const score = element("small");
      const text = element("span", "share");
      return { node: element("td", "", {}, score, text), score, text, said: "" };
    });
    const head = element("th", "token", { scope: "row" }, mark, token);
    const row = element("tr", "", {}, head, logit, ...tds.map((td) => td.node));
    return { row, mark, token, logit, tds };
  }

  // ---- filling --------------------------------------------------------------------------------------------------

  head(stages, partsAt) {
    stages.forEach((stage, at) => {
      const { node, count } = this.headCells[at];
      put(count, fill(this.words.kept, { n: stage.ids.length.toLocaleString("en") }));
      node.classList.toggle("differs", stage.name === partsAt);
    });
  }

  fillRow(at, id, stages, found, { label, recorded, hit }) {
    const cell = this.cells[at];
    cell.row.hidden = false;
    cell.row.classList.toggle("hit", id === hit);
    put(cell.mark, id === hit ? "▸" : id === recorded ? "◆" : "");
    put(cell.token, label(id));
    put(cell.logit, found[0].has(id) ? stages[0].scores[found[0].get(id)].toFixed(2) : "");
    stages.forEach((stage, column) => this.fillCell(cell.tds[column], stage, found, column, id));
  }

  fillCell(td, stage, found, column, id) {
    const place = found[column].get(id);
    const gone = place === undefined;
    const first = gone && column > 0 && found[column - 1].has(id);
    const share = gone ? 0 : stage.probs[place];
    const changed = column > 0 && CHANGE_SCORES.has(stage.name) && !gone;
    put(td.score, changed ? stage.scores[place].toFixed(2) : "");
    // struck through in the column that removed it, with the last probability that it had
    const said = gone ? (first ? percent(this.last(found, column, id)) : "") : percent(share);
    put(td.text, said);
    const kind = gone ? (first ? "gone first" : "gone") : "";
    if (td.node.className !== kind) td.node.className = kind;
    td.node.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
    const title = first ? fill(this.words.removed, { setting: stage.name }) : "";
    if (td.node.title !== title) td.node.title = title;
    put(td.score, first ? "✕" : td.score.textContent);
  }

  last(found, column, id) {
    return found.stages[column - 1].probs[found[column - 1].get(id)];
  }

  fillOther(stages, found) {
    const cell = this.cells[ROWS];
    cell.row.hidden = found[0].size === stages[0].ids.length;
    stages.forEach((stage, column) => {
      let mass = 1;
      for (const place of found[column].values()) mass -= stage.probs[place];
      const n = stage.ids.length - found[column].size;
      const td = cell.tds[column];
      if (column === 0) put(cell.token, fill(this.words.other, { n: n.toLocaleString("en") }));
      put(td.score, n && column ? n.toLocaleString("en") : "");
      put(td.text, n ? percent(Math.max(0, mass)) : "–");
      td.node.style.setProperty("--share", `${n ? (100 * Math.max(0, mass)).toFixed(1) : 0}%`);
    });
  }
}

// The ids to show, likeliest first, and where each stands in each stage (a Map id -> place by stage).
function pick(stages, recorded, hit) {
  const best = new Map(); // id -> its largest probability, before or after
  for (const { ids, probs } of [stages[0], stages.at(-1)]) {
    for (let at = 0; at < Math.min(ROWS, ids.length); at += 1) best.set(ids[at], Math.max(best.get(ids[at]) ?? 0, probs[at]));
  }
  const wanted = [...best.keys()].sort((a, b) => best.get(b) - best.get(a) || a - b);
  const must = [...new Set([hit, recorded])].filter((id) => id !== null && id !== undefined);
  const rows = [...new Set([...must, ...wanted])].slice(0, ROWS);
  const found = stages.map((stage) => places(stage.ids, rows));
  found.stages = stages;
  const rank = (id) => found[0].get(id) ?? Infinity;
  return { rows: rows.filter((id) => found[0].has(id)).sort((a, b) => rank(a) - rank(b)), found };
}

function places(ids, wanted) {
  const left = new Set(wanted);
  const found = new Map();
  for (let at = 0; at < ids.length && left.size; at += 1) if (left.delete(ids[at])) found.set(ids[at], at);
  return found;
}

// Text is written only where it changes: a repaint then touches few nodes.
function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// As charts.base.percent.
function percent(share) {
  if (share && share < 1e-4) return "<0.01%";
  return `${(100 * share).toFixed(share >= 0.1 || !share ? 1 : 2)}%`;
}
