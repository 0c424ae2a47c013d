function trendLine(trend, [width, height]) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(
    shape("path", { d: trend.path, class: "line" }),
    shape("line", { x1: trend.x, x2: trend.x, y1: 0, y2: height, class: "now" }),
  );
  // a line of no length with a round cap: a dot that the stretched box does not flatten
  if (trend.y !== null) svg.append(shape("path", { d: `M${trend.x} ${trend.y}h0.001`, class: "dot" }));
  return svg;
}

function card(metric, box) {
  const node = element("div", metric.trend ? "card" : "card token");
  node.title = metric.help;
  node.append(element("dt", "label", {}, metric.label), element("dd", "value", {}, metric.value));
  node.append(element("dd", "note", {}, metric.note));
  if (metric.trend) node.append(trendLine(metric.trend, box));
  return node;
}

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".metric_cards");
  root.style.setProperty("--trend", data.colour);
  root.replaceChildren(
    ...data.rows.map((metrics) => {
      const row = element("dl", `row of-${metrics.length}`);
      row.append(...metrics.map((metric) => card(metric, data.box)));
      return row;
    }),
  );
}
