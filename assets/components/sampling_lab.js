// The sampling lab: controls, columns and needle over one pipeline, which runs here on every movement. The server is
// told on release, computes the same, and has the last word.

const labs = new WeakMap();
// What the instances of the component share: logits by name, and who waits for them.
const store = (globalThis[Symbol.for("inferoscope.logits")] ??= { arrays: new Map(), waiting: new Set() });
const NAME_BYTES = 32;

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".sampling_lab");
  if (ArrayBuffer.isView(data) || data instanceof ArrayBuffer) return keep(root, data);
  let lab = labs.get(parentElement);
  if (!lab) labs.set(parentElement, (lab = new Lab(root)));
  lab.update(data, setStateValue);
  return () => {
    lab.close();
    labs.delete(parentElement);
  };
}

// This instance only brings the logits: their name, then the float32 values.
function keep(root, data) {
  root.hidden = true;
  const bytes = new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength);
  const name = new TextDecoder().decode(bytes.subarray(0, NAME_BYTES));
  const values = new Float32Array(bytes.slice(NAME_BYTES).buffer);
  store.arrays.set(name, values);
  for (const lab of store.waiting) lab.onLogits(name);
  return () => {
    if (store.arrays.get(name) === values) store.arrays.delete(name);
  };
}

class Lab {
  constructor(root) {
    this.root = root;
    this.n = 0;
    const heard = { moved: () => this.soon(), released: () => this.release() };
    this.controls = new Controls(heard);
    this.needle = new Needle(heard);
    this.columns = new Columns({
      reorder: (name, by) => this.reorder(name, by),
      put: (name, target, after) => this.moveTo(name, target, after),
      preset: (name) => this.setOrder(name),
    });
    store.waiting.add(this);
  }

  close() {
    store.waiting.delete(this);
    cancelAnimationFrame(this.frame);
  }

  update(data, setStateValue) {
    this.setStateValue = setStateValue;
    const before = this.data;
    this.data = data;
    const rebuilt = JSON.stringify(before?.words) !== JSON.stringify(data.words);
    if (rebuilt) this.build();
    if (rebuilt || before.labels !== data.labels) this.labels = new Map(Object.entries(JSON.parse(data.labels)));
    for (const [id, text] of Object.entries(data.answer.labels ?? {})) this.labels.set(id, text);
    const asked = data.goto.serial !== before?.goto.serial || data.run !== before?.run;
    if (asked) {
      this.n = 0;
      this.told = undefined;
      this.settings = data.goto.settings;
      this.needle.set(data.goto.u);
    }
    if (asked || rebuilt) this.controls.show(this.settings);
    this.controls.showNotes(data.notes);
    if (this.prepared?.run !== data.run) this.onLogits(data.run);
    else this.paint();
  }

  onLogits(name) {
    const logits = store.arrays.get(name);
    if (name !== this.data?.run || !logits) return;
    this.prepared = { run: name, size: logits.length };
    this.refused = this.trying(() => Object.assign(this.prepared, prepare(logits, this.data.context)));
    this.paint();
  }

  build() {
    const status = (this.status = element("p", "status", { role: "status" }));
    const views = element("div", "views", {}, this.needle.build(this.data), this.columns.build(this.data), status);
    this.root.replaceChildren(this.controls.build(this.data), views);
    if (this.settings) this.needle.set(this.needle.u);
  }

  // ---- painting -------------------------------------------------------------------------------------------------

  soon() {
    this.frame ??= requestAnimationFrame(() => this.paint());
  }

  // The picture of the settings; where they cannot be computed, the sentence that says why over the last good one.
  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    if (!this.prepared) return;
    const { order } = this.settings;
    this.settings = { ...this.controls.settings, order };
    this.controls.remark(this.prepared.size);
    this.columns.showOrder(order);
    const refused = this.refused || this.trying(() => this.run());
    this.columns.showError(refused ?? "");
    if (!refused) this.draw();
    this.told ??= this.state; // what the page asked for, the server knows
    this.check(refused);
  }

  run() {
    const key = JSON.stringify([this.prepared.run, this.settings]);
    if (key === this.ranFor) return; // only u has moved
    const names = this.data.orders[this.settings.order] ?? this.settings.order;
    const stages = runPipeline(this.prepared, this.settings, names);
    Object.assign(this, { stages, parting: this.parts(stages), ranFor: key });
  }

  draw() {
    const { recorded } = this.data;
    const final = this.stages.at(-1);
    this.hit = choose(final, this.needle.u);
    const said = {
      label: (id) => this.label(id),
      hit: this.hit,
      recorded: recorded.id,
      recordedU: recorded.u,
      greedy: isGreedy(this.settings),
      parting: this.parting,
    };
    this.columns.show(this.stages, said);
    this.needle.show(final, said);
  }

  // Where the chosen order and that of transformers part, if they do; nothing for transformers' own.
  parts(stages) {
    const { words, orders } = this.data;
    if (this.settings.order === "transformers") return undefined;
    let others;
    if (this.trying(() => (others = runPipeline(this.prepared, this.settings, orders.transformers)))) return undefined;
    if (sameDistribution(stages.at(-1), others.at(-1), this.prepared.size)) return { text: words.same };
    const left = (list, at) => list[at - 1].ids.length - list[at].ids.length;
    for (let at = 1; at < stages.length; at += 1) {
      const { name, ids } = stages[at];
      const there = others.findIndex((stage) => stage.name === name);
      if (left(stages, at) === left(others, there) && ids.length === others[there].ids.length) continue;
      const counts = { here: ids.length.toLocaleString("en"), there: others[there].ids.length.toLocaleString("en") };
      if (counts.here === counts.there) continue;
      return { name, text: fill(words.parts_kept, { name, ...counts }) };
    }
    const at = stages.findIndex((stage, i) => stage.name !== others[i].name);
    return { name: stages[at].name, text: fill(words.parts_probs, { name: stages[at].name }) };
  }

  label(id) {
    return this.labels.get(String(id)) ?? `#${id}`;
  }

  // Run; the sentence of the pipeline's error if there is one.
  trying(run) {
    try {
      run();
    } catch (error) {
      if (!(error instanceof PipelineError)) throw error;
      return fill(this.data.words[error.kind], { token_id: error.id, value: error.value, step: error.step });
    }
    return undefined;
  }

  // ---- the order ------------------------------------------------------------------------------------------------

  get names() {
    return this.data.orders[this.settings.order] ?? this.settings.order;
  }

  reorder(name, by) {
    const active = this.stages.map((stage) => stage.name).filter((step) => step !== "raw" && step !== "greedy");
    const target = active[active.indexOf(name) + by];
    if (target) this.moveTo(name, target, by > 0);
  }

  moveTo(name, target, after) {
    if (name === target || !this.names.includes(name)) return;
    const others = this.names.filter((step) => step !== name);
    others.splice(others.indexOf(target) + (after ? 1 : 0), 0, name);
    const known = Object.entries(this.data.orders).find(([, names]) => names.join() === others.join());
    this.setOrder(known ? known[0] : others);
  }

  setOrder(order) {
    this.settings = { ...this.settings, order };
    this.paint();
    this.release();
  }

  // ---- the server -----------------------------------------------------------------------------------------------

  // What is set, as a text to compare.
  get state() {
    return JSON.stringify([this.data.run, this.data.goto.serial, this.settings, this.needle.u]);
  }

  release() {
    if (this.frame !== undefined) this.paint();
    if (!this.prepared) return;
    const { run, goto } = this.data;
    if (this.state === this.told) return;
    this.told = this.state;
    this.n += 1;
    this.setStateValue("set", { run, serial: goto.serial, n: this.n, settings: this.settings, u: this.needle.u });
    this.check();
  }

  // Whether the server has computed what is on show, and the same.
  check(refused) {
    const { answer, words } = this.data;
    const isCurrent = answer.n === this.n && this.state === this.told;
    this.root.dataset.answered = answer.n;
    if (!isCurrent) return this.say("waiting", words.waiting);
    if (answer.error) return this.say(refused ? "agrees" : "disagrees", answer.error);
    const at = refused ? this.settings.order : this.disagreement(answer);
    if (!at) return this.say("agrees", words.agrees);
    return this.say("disagrees", fill(words.disagrees, { step: at, token: this.label(answer.chosen) }));
  }

  say(kind, text) {
    if (this.status.className !== `status ${kind}`) this.status.className = `status ${kind}`;
    put(this.status, text);
  }

  // The stage at which the server's result differs, or nothing.
  disagreement({ stages, ids, probs, chosen }) {
    const sum = (list) => {
      let total = 0;
      for (const id of list) total += id;
      return total;
    };
    for (const [at, [name, n, total]] of stages.entries()) {
      const own = this.stages[at];
      if (own?.name !== name || own.ids.length !== n || sum(own.ids) !== total) return name;
    }
    const final = this.stages.at(-1);
    const near = ids.every((id, at) => Math.abs(final.probs[final.ids.indexOf(id)] - probs[at]) <= 1e-6);
    return near && this.hit === chosen ? undefined : final.name;
  }
}
