// A figure drawn once, as a picture that takes any width: a live one would be drawn anew while the page is printed.

const drawn = new WeakMap();

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".paper_figure");
  if (drawn.get(root) === data.figure) return;
  drawn.set(root, data.figure);
  draw(root, data).catch(() => (root.textContent = data.failed));
}

async function draw(root, { figure, width, height, alt }) {
  const Plotly = await loadPlotly();
  const shown = JSON.parse(figure);
  const url = await Plotly.toImage(shown, { format: "svg", width, height, imageDataOnly: true });
  const svg = new DOMParser().parseFromString(url, "image/svg+xml").documentElement;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  svg.removeAttribute("style");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", alt);
  root.replaceChildren(svg);
}
