// What a browser tab does by itself. It tells the server when the reader has changed between light and dark, because
// the colours of the charts are made there; and it keeps in its address what a reload needs, on whatever page, without
// adding to the history.

function isDark(element) {
  const probe = document.createElement("span");
  probe.style.color = "var(--st-background-color)";
  element.append(probe);
  const [red, green, blue] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return red + green + blue < 3 * 128;
}

function keep(wanted) {
  const address = new URL(location.href);
  const missing = Object.entries(wanted).filter(([name, value]) => address.searchParams.get(name) !== value);
  for (const [name, value] of missing) address.searchParams.set(name, value);
  if (missing.length) history.replaceState(history.state, "", address);
}

// called anew whenever the data or the theme has changed
export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".tab");
  const mode = isDark(root) ? "dark" : "light";
  if (root.dataset.shown && root.dataset.shown !== mode) setTriggerValue("changed", mode);
  root.dataset.shown = mode;
  keep(data.address);
}
