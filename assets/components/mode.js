// Tells the server when the reader has changed between light and dark: the colours of the charts are made there.

function isDark(element) {
  const probe = document.createElement("span");
  probe.style.color = "var(--st-background-color)";
  element.append(probe);
  const [red, green, blue] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return red + green + blue < 3 * 128;
}

// called anew whenever the theme has changed
export default function ({ parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".mode");
  const mode = isDark(root) ? "dark" : "light";
  if (root.dataset.shown && root.dataset.shown !== mode) setTriggerValue("changed", mode);
  root.dataset.shown = mode;
}
