// How components make elements. Text is always set as text.

function element(tag, className = "", attributes = {}, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// A text's fields filled in, as Python's str.format does.
const fill = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => values[name]);

function shape(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// An icon of one path in a box of 24 units.
function drawing(path) {
  const svg = shape("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" });
  svg.append(shape("path", { d: path }));
  return svg;
}
