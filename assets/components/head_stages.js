// Four small matrices from q · k to a weight, as tables. Every text is set as text.

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".head_stages");
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", data.title);
  const colours = { shares: ramp(data.sequential), signed: ramp(data.diverging) };
  const panels = data.panels.map((panel) => matrix(panel, data, panel.shares ? colours.shares : colours.signed));
  root.replaceChildren(element("div", "panels", {}, ...panels));
}

function matrix({ name, words, levels }, { queries, keys }, colours) {
  const head = element("tr", "", {}, element("td"), ...keys.map((key) => element("th", "", { scope: "col" }, element("span", "", {}, key))));
  const rows = queries.map((query, at) => {
    const cells = words[at].map((word, i) => cell(word, colours[levels[at][i]]));
    return element("tr", "", {}, element("th", "", { scope: "row" }, query), ...cells);
  });
  return element("table", "", {}, element("caption", "", {}, name), element("thead", "", {}, head), element("tbody", "", {}, ...rows));
}

// What the mask hides has no colour but stripes.
function cell(word, colour) {
  const node = element("td", colour ? "cell" : "cell hidden", {}, word);
  if (colour) {
    node.style.background = `rgb(${colour})`;
    node.style.color = isLight(colour) ? "#1c1b22" : "#ffffff";
  }
  return node;
}

// Whether dark text reads better on it: relative luminance as WCAG 2 defines it, against the point of equal contrast.
function isLight(colour) {
  const [r, g, b] = colour.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18;
}
