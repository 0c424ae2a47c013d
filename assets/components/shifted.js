// Inputs and shifted targets as pairs; the pairs after the reader's position are striped: the mask hides them from it.

const shiftedViews = new WeakMap();

export default function ({ data, parentElement, setStateValue }) {
  let view = shiftedViews.get(parentElement);
  if (!view) shiftedViews.set(parentElement, (view = new Shifted(parentElement.querySelector(".shifted"))));
  view.update(data, setStateValue);
  return () => shiftedViews.delete(parentElement);
}

class Shifted {
  constructor(root) {
    this.root = root;
  }

  update(data, setStateValue) {
    this.setStateValue = setStateValue;
    const before = this.data;
    this.data = data;
    if (before?.run !== data.run) this.at = data.start;
    const same = before?.columns === data.columns && JSON.stringify(before.words) === JSON.stringify(data.words);
    if (!same) {
      this.columns = JSON.parse(data.columns);
      if (this.at < this.columns.first || this.at >= this.columns.first + this.columns.n) this.at = data.start;
      this.build();
    }
    this.paint();
  }

  build() {
    const { words } = this.data;
    this.list = element("div", "pairs", { role: "listbox", tabindex: 0, "aria-label": words.label, dir: "ltr" });
    this.pairs = Array.from({ length: this.columns.n }, (_, i) => this.pair(i));
    this.list.append(...this.pairs);
    this.list.addEventListener("click", (event) => {
      const pair = event.target.closest(".pair");
      if (pair) this.move(Number(pair.dataset.at));
    });
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    const legend = element("p", "legend", {}, element("span", "", {}, words.fed), element("span", "", {}, words.target));
    legend.append(element("span", "", {}, element("i", "sample", { "aria-hidden": "true" }), words.hidden));
    this.root.replaceChildren(this.list, legend);
  }

  pair(i) {
    const { words } = this.data;
    const { first, texts, ends, levels, shares, ranks, n } = this.columns;
    const last = ends && i === n - 1;
    const [input, target] = [texts[i] || "∅", last ? words.unknown : texts[i + 1] || "∅"];
    const values = { at: first + i, input, target, share: shares[i], rank: ranks[i] };
    const said = fill(last ? words.last : words.pair, values);
    const node = element("div", "pair", { role: "option", id: `pair-${first + i}`, "aria-label": said, title: said });
    node.dataset.at = first + i;
    node.append(element("span", "input", {}, input));
    node.append(element("span", last ? "target unknown" : `target level-${levels[i]}`, {}, target));
    return node;
  }

  onKey(event) {
    const { first, n } = this.columns;
    const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: first, End: first + n - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(Math.min(Math.max(to, first), first + n - 1));
  }

  move(at) {
    if (at === this.at) return;
    this.at = at;
    this.paint();
    this.pairs[at - this.columns.first].scrollIntoView({ block: "nearest" });
    clearTimeout(this.telling); // a held key repeats faster than the page can follow
    this.telling = setTimeout(() => this.setStateValue("at", { run: this.data.run, position: at }), 80);
  }

  paint() {
    const now = this.at - this.columns.first;
    this.pairs.forEach((node, i) => {
      node.classList.toggle("current", i === now);
      node.classList.toggle("hidden-from", i > now);
      node.setAttribute("aria-selected", String(i === now));
    });
    this.list.setAttribute("aria-activedescendant", `pair-${this.at}`);
  }
}
