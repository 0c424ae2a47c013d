// The map of heads: a thumbnail a head; the arrow keys move about, Enter or a click opens one.

const HIDDEN = 255;

const maps = new WeakMap();

export default function ({ data, parentElement, setStateValue }) {
  let map = maps.get(parentElement);
  if (!map) maps.set(parentElement, (map = new HeadMap(parentElement.querySelector(".head_map"))));
  map.update(data, setStateValue);
  return () => {
    map.close();
    maps.delete(parentElement);
  };
}

class HeadMap {
  constructor(root) {
    this.root = root;
    root.addEventListener("keydown", (event) => this.onKey(event));
    root.addEventListener("click", (event) => this.open(event.target.closest(".thumb")));
  }

  update(data, setStateValue) {
    this.setStateValue = setStateValue;
    const look = ({ colours, words }) => [...colours, words.label].join();
    if (this.data?.mosaic !== data.mosaic || look(this.data) !== look(data)) this.build(data);
    this.data = data;
    this.show();
  }

  build(data) {
    const mosaic = (this.mosaic = JSON.parse(data.mosaic));
    this.paintSheet(mosaic, ramp(data.colours));
    this.thumbs = mosaic.heads.map(([layer, head], at) => this.thumb(layer, head, at, data.words));
    const grid = element("div", mosaic.ranked ? "grid ranked" : "grid", { role: "group", "aria-label": data.words.label });
    grid.append(...(mosaic.ranked ? this.thumbs : this.inPlace(mosaic, data.words)));
    if (!mosaic.ranked) grid.style.gridTemplateColumns = `auto repeat(${mosaic.n_heads}, minmax(18px, 34px))`;
    this.columns = mosaic.ranked ? 0 : mosaic.n_heads;
    this.root.replaceChildren(grid);
  }

  // All thumbnails as one image, layers below each other: hundreds of canvases would slow each frame of the page.
  paintSheet({ layers, n_heads: n, side, levels: text }, colours) {
    const [levels, width] = [bytesOf(text), n * side];
    const level = (i) => {
      const [x, y] = [i % width, Math.floor(i / width)];
      const head = Math.floor(y / side) * n + Math.floor(x / side);
      const value = levels[(head * side + (y % side)) * side + (x % side)];
      return value === HIDDEN ? undefined : value;
    };
    const canvas = element("canvas");
    paint(canvas, layers.length * side, width, colours, level);
    canvas.toBlob((image) => {
      this.close();
      this.address = URL.createObjectURL(image); // short: every thumbnail's style is made with it
      this.root.style.setProperty("--sheet", `url(${this.address})`);
    });
  }

  close() {
    if (this.address) URL.revokeObjectURL(this.address);
  }

  thumb(layer, head, at, words) {
    const { layers, groups, notes, bars, ranked } = this.mosaic;
    const place = { layer: layers[layer], head, group: groups[head], note: notes[layer][head] };
    const label = fill(words.head, place);
    const node = element("button", "thumb", { type: "button", "aria-label": label, title: label, tabindex: -1 });
    const bar = element("i");
    bar.style.width = `${100 * bars[layer][head]}%`;
    const cells = element("span", "cells", { "aria-hidden": "true" });
    const share = (i, n) => `${n > 1 ? (100 * i) / (n - 1) : 0}%`;
    cells.style.backgroundSize = `${100 * this.mosaic.n_heads}% ${100 * layers.length}%`;
    cells.style.backgroundPosition = `${share(head, this.mosaic.n_heads)} ${share(layer, layers.length)}`;
    node.append(cells, element("span", "bar", {}, bar));
    if (ranked) node.append(element("span", "name", {}, `${layers[layer]}·${head}`), element("small", "", {}, place.note));
    if (!ranked && head && groups[head] !== groups[head - 1]) node.classList.add("first");
    Object.assign(node.dataset, { at, layer: place.layer, head });
    return node;
  }

  // Rows are layers, columns are heads; heads that read one KV head stand under one bracket.
  inPlace({ layers, groups, n_heads: n, n_groups: nGroups }, words) {
    const parts = [];
    if (nGroups < n) {
      parts.push(element("span", "corner", {}, words.kv));
      for (let group = 0; group < nGroups; group += 1) {
        const bracket = element("span", group ? "bracket first" : "bracket", {}, String(group));
        bracket.style.gridColumn = `span ${groups.filter((g) => g === group).length}`;
        parts.push(bracket);
      }
    }
    parts.push(element("span", "corner", {}, words.axes));
    for (let head = 0; head < n; head += 1) parts.push(element("span", "head", {}, String(head)));
    layers.forEach((layer, row) => {
      parts.push(element("span", "layer", {}, String(layer)), ...this.thumbs.slice(row * n, (row + 1) * n));
    });
    return parts;
  }

  show() {
    const { layer, head } = this.data.chosen;
    const chosen = this.thumbs.find((thumb) => Number(thumb.dataset.layer) === layer && Number(thumb.dataset.head) === head);
    for (const thumb of this.thumbs) {
      thumb.classList.toggle("chosen", thumb === chosen);
      thumb.setAttribute("aria-pressed", String(thumb === chosen));
      thumb.tabIndex = -1;
    }
    (chosen ?? this.thumbs[0] ?? {}).tabIndex = 0;
  }

  open(thumb) {
    if (!thumb) return;
    const chosen = { layer: Number(thumb.dataset.layer), head: Number(thumb.dataset.head) };
    this.data = { ...this.data, chosen };
    this.show();
    this.setStateValue("chosen", { ...chosen, serial: Date.now() });
  }

  onKey(event) {
    const at = Number(event.target.dataset?.at);
    if (Number.isNaN(at) || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.columns || this.perRow();
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - row, ArrowDown: at + row, Home: 0, End: this.thumbs.length - 1 };
    const thumb = this.thumbs[to[event.key]];
    if (!(event.key in to)) return;
    event.preventDefault();
    if (!thumb) return;
    event.target.tabIndex = -1;
    thumb.tabIndex = 0;
    thumb.focus();
  }

  perRow() {
    const top = this.thumbs[0].offsetTop;
    const next = this.thumbs.findIndex((thumb) => thumb.offsetTop > top);
    return next < 0 ? this.thumbs.length : next;
  }
}
