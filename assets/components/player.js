// The token strip and its transport. Every text is set as text, never as markup: a token can be anything.

const PACES = { 1: 2, 4: 8 }; // steps a second at 1× and 4×
const LONG = 800; // so many tokens fill the strip on any screen
const TELL_PLAYING_MS = 400; // the charts redraw in about a third of a second
const TELL_STEPPING_MS = 150; // a held arrow key repeats faster than this

const players = new WeakMap();

export default function ({ data, parentElement, setStateValue }) {
  let player = players.get(parentElement);
  if (!player) players.set(parentElement, (player = new Player(parentElement.querySelector(".player"))));
  player.update(data, setStateValue);
  return () => {
    player.close();
    players.delete(parentElement);
  };
}

class Player {
  constructor(root) {
    this.root = root;
    this.step = 0;
    this.speed = "1";
    this.serial = -1;
    this.toldAt = 0;
    this.chips = [];
    this.tops = []; // the strip's own children: a chip, or the frame around the pieces of a character
    this.card = new Card(root, () => this.data);
    root.addEventListener("keydown", (event) => this.onKey(event));
  }

  update(sent, setStateValue) {
    this.setStateValue = setStateValue;
    const before = this.data;
    if (before?.strip !== sent.strip) this.columns = JSON.parse(sent.strip);
    const data = (this.data = { ...this.columns, ...sent });
    const sameRun = before?.run === data.run;
    const rebuilt = !sameRun || JSON.stringify(before.words) !== JSON.stringify(data.words);
    if (rebuilt) this.build();
    if (rebuilt || before.strip !== data.strip) this.fillStrip(rebuilt ? undefined : before);
    if (data.live) {
      this.strip.scrollTop = this.strip.scrollHeight;
    } else if (data.goto.serial !== this.serial || !sameRun) {
      this.serial = data.goto.serial;
      this.pause(false);
      this.show(data.goto.step);
    } else if (rebuilt) {
      this.show(this.step);
    }
  }

  close() {
    this.pause(false);
    clearTimeout(this.timer);
    this.card.close();
  }

  get last() {
    return this.data.ids.length - this.data.n_prompt - 1;
  }

  // ---- building -------------------------------------------------------------------------------------------------

  build() {
    const { words, live, height } = this.data;
    this.pause(false);
    this.chips = [];
    this.tops = [];
    this.strip = element("div", "strip", {
      role: "listbox",
      tabindex: "0",
      "aria-label": live ? words.live : words.tokens,
      "aria-orientation": "horizontal",
      dir: "ltr",
    });
    if (height) this.strip.style.maxHeight = `${height}px`;
    this.strip.addEventListener("click", (event) => this.onClick(event));
    this.card.watch(this.strip, (target) => this.indexOf(target));
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", words.player);
    this.root.classList.toggle("live", Boolean(live));
    this.root.replaceChildren(...(live ? [] : [this.buildTransport()]), this.strip, this.buildLegend());
  }

  buildTransport() {
    const { words } = this.data;
    this.back = this.button("back", ICONS.back, () => this.go(this.step - 1));
    this.playButton = this.button("play", ICONS.play, () => this.toggle());
    this.on = this.button("on", ICONS.on, () => this.go(this.step + 1));
    this.playButton.classList.add("primary");
    this.slider = element("input", "slider", {
      type: "range",
      min: 0,
      max: this.last,
      step: 1,
      "aria-label": words.slider,
    });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.where = element("output", "where");
    const paces = [["1", "1×", ""], ["4", "4×", ""], ["own", words.own, words.own_help]];
    this.speeds = paces.map(([speed, text, help]) => this.speedButton(speed, text, help));
    return element(
      "div",
      "transport",
      { role: "group", "aria-label": words.transport },
      element("div", "buttons", {}, this.back, this.playButton, this.on),
      this.slider,
      this.where,
      element("div", "speeds", { role: "group", "aria-label": words.speed }, ...this.speeds),
    );
  }

  button(name, icon, onClick) {
    const words = this.data.words;
    const node = element("button", `step ${name}`, { type: "button", "aria-label": words[name], title: words[name] });
    node.append(drawing(icon));
    node.addEventListener("click", onClick);
    return node;
  }

  speedButton(speed, text, help) {
    const node = element("button", "speed", { type: "button", "data-speed": speed }, text);
    if (help) node.title = help;
    node.setAttribute("aria-pressed", String(speed === this.speed));
    node.addEventListener("click", () => {
      this.speed = speed;
      for (const other of this.speeds) other.setAttribute("aria-pressed", String(other === node));
      if (this.playing) this.play();
    });
    return node;
  }

  buildLegend() {
    const { words, live } = this.data;
    const steps = [0, 1, 2, 3, 4].map((level) => element("i", `swatch level-${level}`));
    const scale = element("span", "scale", { title: words.surprise, role: "img", "aria-label": words.surprise });
    scale.append(words.expected, ...steps, words.surprising);
    return element("div", "legend", {}, scale, element("span", "keys", {}, live ? "" : words.keys));
  }

  // Chips are appended; what was drawn before and is no longer so (a character that got its last piece) is redrawn.
  fillStrip(before) {
    const from = before ? firstChange(before, this.data) : 0;
    while (this.tops.length && this.tops.at(-1).from >= from) this.tops.pop().node.remove();
    const start = this.tops.length ? this.tops.at(-1).to : 0;
    this.chips.length = start;
    this.end?.remove();
    const special = new Set(this.data.special);
    const glyphs = new Map(this.data.glyphs.map(([first, to, text]) => [first, { to, text }]));
    const added = document.createDocumentFragment();
    for (let at = start; at < this.data.ids.length; ) {
      const glyph = glyphs.get(at);
      const to = glyph ? glyph.to : at + 1;
      const chips = [];
      for (let i = at; i < to; i += 1) chips.push(this.chip(i, special.has(i)));
      const node = glyph ? frame(glyph.text, chips) : chips[0];
      this.tops.push({ node, from: at, to });
      added.append(node);
      at = to;
    }
    this.strip.append(added);
    this.addEnd();
    const long = this.data.height && this.chips.length > LONG;
    this.strip.classList.toggle("long", Boolean(long));
    this.strip.style.height = long ? `${this.data.height}px` : "";
    if (!this.data.live) this.mark(0, this.chips.length);
  }

  chip(at, isSpecial) {
    const { n_prompt: nPrompt, levels, texts, cut } = this.data;
    const kind = at < nPrompt ? "prompt" : `level-${levels[at - nPrompt]}`;
    const node = element("span", `chip ${kind}`, { role: "option", "aria-selected": "false", id: `token-${at}` });
    if (isSpecial) node.classList.add("special");
    if (cut && at >= cut[0] && at < cut[1]) node.classList.add("cut");
    node.textContent = texts[at] || "∅";
    this.chips[at] = node;
    return node;
  }

  addEnd() {
    if (!this.data.stop) return;
    const [word, sentence] = this.data.stop;
    const attributes = { role: "option", "aria-disabled": "true", "aria-label": sentence, title: sentence };
    this.end = element("span", "end", attributes, `■ ${word}`);
    this.strip.append(this.end);
  }

  // ---- moving ---------------------------------------------------------------------------------------------------

  go(step) {
    this.pause(false);
    this.show(step);
    this.tell(TELL_STEPPING_MS);
  }

  // Paint a step: only the chips between the old and the new one change.
  show(step) {
    const { n_prompt: nPrompt, words } = this.data;
    const old = nPrompt + this.step;
    this.step = Math.min(Math.max(step, 0), this.last);
    const now = nPrompt + this.step;
    this.current?.classList.remove("current");
    this.current?.setAttribute("aria-selected", "false");
    this.mark(Math.min(old, now), Math.max(old, now) + 1);
    this.current = this.chips[now];
    this.current.classList.add("current");
    this.current.setAttribute("aria-selected", "true");
    this.current.setAttribute("aria-label", this.spoken(now));
    this.strip.setAttribute("aria-activedescendant", this.current.id);
    this.keepInView();
    const place = fill(words.step, { step: this.step, last: this.last });
    this.slider.value = this.step;
    this.slider.setAttribute("aria-valuetext", `${place}: ${this.spoken(now)}`);
    this.slider.style.setProperty("--done", `${this.last ? (100 * this.step) / this.last : 100}%`);
    this.where.replaceChildren(place, element("small", "", {}, this.step ? words.decode : words.prefill));
    this.back.disabled = this.step === 0;
    this.on.disabled = this.step === this.last;
    if (this.card.isOpen) this.card.hide();
  }

  // What is chosen after the current step is shown as not there yet.
  mark(from, to) {
    const now = this.data.n_prompt + this.step;
    for (let at = from; at < Math.min(to, this.chips.length); at += 1) this.chips[at].classList.toggle("later", at > now);
  }

  spoken(at) {
    const { n_prompt: nPrompt, texts, raw, rank, words } = this.data;
    return fill(words.generated, { token: texts[at], raw: raw[at - nPrompt], rank: rank[at - nPrompt] });
  }

  keepInView() {
    const box = this.strip.getBoundingClientRect();
    const chip = this.current.getBoundingClientRect();
    if (chip.top < box.top + 4) this.strip.scrollTop += chip.top - box.top - 12;
    if (chip.bottom > box.bottom - 4) this.strip.scrollTop += chip.bottom - box.bottom + 12;
  }

  // Tell the server the step: at once, or where it has just been told, when `gap` has passed.
  tell(gap) {
    clearTimeout(this.timer);
    const wait = this.toldAt + gap - performance.now();
    if (wait > 0) {
      this.timer = setTimeout(() => this.tell(0), wait);
      return;
    }
    this.toldAt = performance.now();
    this.setStateValue("at", { run: this.data.run, serial: this.serial, step: this.step });
  }

  // ---- playing --------------------------------------------------------------------------------------------------

  get playing() {
    return this.frame !== undefined;
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    this.pause(false);
    if (this.step === this.last) this.show(0);
    const base = this.step;
    const began = performance.now();
    this.face(ICONS.pause, this.data.words.pause);
    const tick = (now) => {
      const due = this.due(base, (now - began) / 1000);
      if (due !== this.step) {
        this.show(due);
        if (due < this.last) this.tell(TELL_PLAYING_MS);
      }
      if (due >= this.last) this.pause();
      else this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  // The step to show `seconds` after playing began at step `base`.
  due(base, seconds) {
    if (this.speed !== "own") return Math.min(this.last, base + Math.max(0, Math.floor(seconds * PACES[this.speed])));
    const { ends } = this.data;
    let step = base;
    while (step < this.last && ends[step + 1] - ends[base] <= seconds) step += 1;
    return step;
  }

  pause(tell = true) {
    if (!this.playing) return;
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    this.face(ICONS.play, this.data.words.play);
    if (tell) this.tell(0);
  }

  face(icon, label) {
    this.playButton.replaceChildren(drawing(icon));
    this.playButton.setAttribute("aria-label", label);
    this.playButton.title = label;
  }

  // ---- hearing --------------------------------------------------------------------------------------------------

  onKey(event) {
    if (this.data.live || event.ctrlKey || event.metaKey || event.altKey) return;
    const onButton = event.target.closest("button");
    const actions = {
      ArrowLeft: () => this.go(this.step - 1),
      ArrowRight: () => this.go(this.step + 1),
      Home: () => this.go(0),
      End: () => this.go(this.last),
      Escape: () => this.card.hide(),
      " ": onButton ? undefined : () => this.toggle(),
      Enter: onButton ? undefined : () => this.card.toggle(this.current, this.data.n_prompt + this.step),
    };
    const action = actions[event.key];
    if (!action) return;
    if (event.key !== "Escape") event.preventDefault();
    action();
  }

  onClick(event) {
    const at = this.indexOf(event.target);
    if (at === undefined || this.data.live) return;
    this.go(at - this.data.n_prompt); // a prompt token: the prefill
  }

  indexOf(target) {
    const chip = target.closest?.(".chip");
    return chip ? Number(chip.id.slice("token-".length)) : undefined;
  }
}

// ---- small things -----------------------------------------------------------------------------------------------

const ICONS = {
  back: "M6 5h2v14H6zM19 5v14L9 12z",
  on: "M16 5h2v14h-2zM5 5v14l10-7z",
  play: "M7 4.5v15l12-7.5z",
  pause: "M7 5h4v14H7zM13 5h4v14h-4z",
};

// The pieces of a character under the character that they make.
function frame(text, chips) {
  const glyph = element("span", "glyph", { "aria-hidden": "true" }, text);
  return element("span", "joined", { role: "group", "aria-label": text }, glyph, element("span", "pieces", {}, ...chips));
}

// The first token from which on two states of a growing strip differ.
function firstChange(before, data) {
  const same = (at) => before.ids[at] === data.ids[at] && before.levels[at - data.n_prompt] === data.levels[at - data.n_prompt];
  let at = 0;
  while (at < before.ids.length && at < data.ids.length && same(at)) at += 1;
  const known = new Set(before.glyphs.map(String));
  for (const glyph of data.glyphs) if (!known.has(String(glyph))) return Math.min(at, glyph[0]);
  return at;
}
