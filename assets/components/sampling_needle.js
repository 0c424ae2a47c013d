// The final distribution as one bar, likeliest first, and the number u as a needle on the token that it hits.

const SEGMENTS = 40;
const NARROWEST = 0.004; // of the bar; what is narrower is part of the rest

class Needle {
  constructor({ moved, released }) {
    this.moved = moved;
    this.released = released;
  }

  build({ words }) {
    this.words = words;
    this.sentence = element("p", "fell", { role: "status" });
    this.bar = element("div", "bar", { role: "slider", tabindex: "0", "aria-label": words.bar, "aria-valuemin": 0, "aria-valuemax": 1 });
    this.segments = Array.from({ length: SEGMENTS + 1 }, () => element("span", "part"));
    this.segments[SEGMENTS].classList.add("rest");
    this.pin = element("i", "pin", { "aria-hidden": "true" });
    this.ghost = element("i", "ghost", { "aria-hidden": "true" });
    this.bar.append(element("div", "parts", {}, ...this.segments), this.ghost, this.pin);
    this.listen();
    this.field = element("input", "number", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": words.u });
    this.error = element("p", "error", { role: "alert" });
    this.field.addEventListener("input", () => this.onType());
    this.field.addEventListener("change", () => this.released());
    this.redraw = this.button("redraw", () => Math.random());
    this.back = this.button("back", () => this.recordedU);
    const tools = element("label", "u", {}, element("span", "", {}, words.u), this.field);
    const head = element("div", "head", {}, element("h3", "", {}, words.needle), tools, this.redraw, this.back);
    return element("div", "needle", { role: "group", "aria-label": words.needle }, head, this.error, this.bar, this.sentence);
  }

  button(name, next) {
    const button = element("button", `plain ${name}`, { type: "button" }, this.words[name]);
    button.addEventListener("click", () => {
      this.set(next());
      this.moved();
      this.released();
    });
    return button;
  }

  set(u) {
    this.u = Math.min(Math.max(u, 0), 1 - 2 ** -53);
    this.error.textContent = "";
    this.field.value = this.u.toFixed(4);
  }

  onType() {
    const value = Number(this.field.value);
    const isU = this.field.value.trim() !== "" && value >= 0 && value < 1;
    this.error.textContent = isU ? "" : fill(this.words.u_error, { value: this.field.value });
    if (!isU) return;
    this.u = value;
    this.moved();
  }

  listen() {
    const { bar } = this;
    const at = (event) => {
      const box = bar.getBoundingClientRect();
      this.set((event.clientX - box.left) / box.width);
      this.moved();
    };
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      bar.focus();
      at(event);
    });
    bar.addEventListener("pointermove", (event) => bar.hasPointerCapture(event.pointerId) && at(event));
    bar.addEventListener("pointerup", () => this.released());
    bar.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -0.01, ArrowRight: 0.01, ArrowDown: -0.01, ArrowUp: 0.01, PageDown: -0.1, PageUp: 0.1 }[event.key];
      const to = { Home: 0, End: 1 }[event.key] ?? (by && this.u + (event.shiftKey ? by / 10 : by));
      if (to === undefined) return;
      event.preventDefault();
      this.set(to);
      this.moved();
    });
    bar.addEventListener("keyup", (event) => /Arrow|Page|Home|End/.test(event.key) && this.released());
  }

  show(stage, { label, hit, recorded, recordedU, greedy }) {
    this.recordedU = recordedU;
    this.fillBar(stage, label, hit);
    this.bar.classList.toggle("unused", greedy);
    this.pin.style.left = `${100 * this.u}%`;
    this.ghost.style.left = `${100 * recordedU}%`;
    this.back.disabled = this.u === recordedU;
    const share = percent(stage.probs[stage.ids.indexOf(hit)]);
    const fell = fill(greedy ? this.words.greedy_took : this.words.fell, { u: this.u.toFixed(4), token: label(hit), share });
    const then = recorded === null ? "" : hit === recorded ? this.words.as_recorded : fill(this.words.changed, { token: label(recorded) });
    put(this.sentence, then ? fill(this.words.sentences, { first: fell, then }) : fell);
    this.sentence.classList.toggle("differs", recorded !== null && hit !== recorded);
    this.bar.setAttribute("aria-valuenow", this.u.toFixed(4));
    this.bar.setAttribute("aria-valuetext", this.sentence.textContent);
  }

  fillBar({ ids, probs }, label, hit) {
    let mass = 0;
    let n = 0;
    for (; n < Math.min(SEGMENTS, ids.length) && probs[n] >= NARROWEST; n += 1) {
      const part = this.segments[n];
      const share = probs[n];
      part.hidden = false;
      part.style.width = `${100 * share}%`;
      part.classList.toggle("hit", ids[n] === hit);
      const text = share > 0.045 ? label(ids[n]) : "";
      put(part, text);
      part.title = fill(this.words.segment, { token: label(ids[n]), share: percent(share) });
      mass += share;
    }
    for (let at = n; at < SEGMENTS; at += 1) this.segments[at].hidden = true;
    const rest = this.segments[SEGMENTS];
    rest.hidden = n === ids.length;
    rest.style.width = `${100 * Math.max(0, 1 - mass)}%`;
    const says = fill(this.words.rest, { n: (ids.length - n).toLocaleString("en") });
    put(rest, 1 - mass > 0.08 ? says : "");
    rest.title = says;
  }
}
