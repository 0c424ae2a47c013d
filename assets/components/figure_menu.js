// A figure's menu: it is saved as the page shows it.

async function save(format, { card, title, background }) {
  const figure = document.querySelector(`.st-key-${CSS.escape(card)} .js-plotly-plot`);
  const Plotly = await loadPlotly();
  const { width, height } = figure.getBoundingClientRect();
  const safe = title.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const layout = {
    ...figure.layout,
    title: { text: safe, x: 0, xref: "paper", y: 1, yref: "container", yanchor: "top", pad: { t: 12 }, font: { size: 17 } },
    margin: { ...figure.layout.margin, t: (figure.layout.margin?.t ?? 0) + 36 },
    legend: { ...figure.layout.legend, y: 1 - 36 / (height + 36) },
    paper_bgcolor: background,
    width,
    height: height + 36,
  };
  const filename = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "") || "figure";
  await Plotly.downloadImage(
    { data: figure.data, layout },
    { format, filename, width, height: height + 36, scale: format === "png" ? 2 : 1 },
  );
}

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".figure_menu");
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  const buttons = ["svg", "png"].map((format) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = format.toUpperCase();
    button.title = data.words[format];
    button.setAttribute("aria-label", `${data.words[format]}: ${data.title}`);
    button.onclick = () => save(format, data).catch(() => (status.textContent = data.words.failed));
    return button;
  });
  root.replaceChildren(...buttons, status);
}
