// The card of a token: what is known of it, under the pointer or, after Enter, under the ring.

class Card {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.node = element("div", "card", { popover: "manual", role: "tooltip", id: "token-card" });
  }

  get isOpen() {
    return this.node.isConnected && this.node.matches(":popover-open");
  }

  watch(strip, indexOf) {
    strip.addEventListener("pointerover", (event) => {
      const at = indexOf(event.target);
      if (at === undefined || this.data().live) this.hide();
      else this.show(event.target.closest(".chip"), at);
    });
    strip.addEventListener("pointerleave", () => this.hide());
    strip.addEventListener("blur", () => this.hide());
    strip.addEventListener("scroll", () => this.hide());
  }

  toggle(chip, at) {
    if (this.isOpen) this.hide();
    else this.show(chip, at);
  }

  show(chip, at) {
    const data = this.data();
    this.node.replaceChildren(...(at < data.n_prompt ? this.ofPrompt(data, at) : this.ofStep(data, at)));
    if (!this.node.isConnected) this.root.append(this.node);
    this.node.showPopover();
    chip.setAttribute("aria-describedby", this.node.id);
    this.place(chip.getBoundingClientRect());
  }

  hide() {
    if (this.isOpen) this.node.hidePopover();
  }

  close() {
    this.hide();
    this.node.remove();
  }

  // Below the chip, or above where there is no room; never outside the window.
  place(chip) {
    const { width, height } = this.node.getBoundingClientRect();
    const below = chip.bottom + 8;
    const top = below + height < innerHeight ? below : Math.max(4, chip.top - height - 8);
    this.node.style.left = `${Math.max(4, Math.min(chip.left, innerWidth - width - 4))}px`;
    this.node.style.top = `${top}px`;
  }

  ofPrompt(data, at) {
    const note = fill(data.words.prompt_token, { at });
    return [this.head(data, at), this.facts(data, at, []), element("p", "", {}, note)];
  }

  ofStep(data, at) {
    const step = at - data.n_prompt;
    const { words } = data;
    const rows = [
      [words.raw, data.raw[step]],
      [words.prob, data.prob[step]],
      [words.rank, data.rank[step].toLocaleString("en")],
      [words.entropy, fill(words.nats, { value: data.entropy[step].toFixed(2) })],
    ];
    const parts = [this.head(data, at), this.facts(data, at, rows)];
    if (data.forced.includes(step)) parts.push(element("p", "", {}, words.forced));
    if (data.alternatives.length) parts.push(this.alternatives(data, step));
    return parts;
  }

  head(data, at) {
    const glyph = data.glyphs.find(([from, to]) => at >= from && at < to);
    const head = element("div", "head", {}, element("b", "", {}, data.texts[at] || "∅"));
    if (glyph) head.append(element("span", "", {}, fill(data.words.part_of, { text: glyph[2] })));
    return head;
  }

  facts(data, at, rows) {
    const list = element("dl");
    for (const [name, value] of [[data.words.id, data.ids[at]], [data.words.bytes, data.bytes[at]], ...rows]) {
      list.append(element("dt", "", {}, name), element("dd", "", {}, String(value)));
    }
    return list;
  }

  alternatives(data, step) {
    const list = element("ol", "alternatives", { "aria-label": data.words.alternatives });
    data.alternatives[step].forEach((text, i) => {
      const share = data.alternative_shares[step][i];
      const bar = element("i");
      bar.style.width = `${100 * share}%`;
      const name = element("span", "", {}, data.alternative_texts[text]);
      list.append(element("li", "", {}, name, element("em", "", {}, bar), `${(100 * share).toFixed(1)}%`));
    });
    return element("div", "", {}, element("p", "", {}, data.words.alternatives), list);
  }
}
