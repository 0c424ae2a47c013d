// Rows of tokens as a table. Every text is set as text, never as markup: a token can be anything.

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".token_rows");
  const rows = data.rows.map(({ name, chips, remark }) =>
    element(
      "tr",
      "",
      {},
      element("th", "", { scope: "row" }, name),
      element("td", "chips", {}, ...chips.map(chip)),
      element("td", "remark", {}, remark),
    ),
  );
  const named = data.rows.some((row) => row.name) ? " named" : "";
  const remarked = data.rows.some((row) => row.remark) ? " remarked" : "";
  root.replaceChildren(
    element("table", `rows${named}${remarked}`, { "aria-label": data.label }, element("tbody", "", {}, ...rows)),
  );
}

function chip({ text, note, kind, share }) {
  const node = element("span", `chip ${kind}`, {}, element("span", "text", { translate: "no" }, text));
  if (note) node.append(element("span", "note", {}, note));
  if (share !== null) {
    const meter = element("span", "meter", { "aria-hidden": "true" });
    meter.style.setProperty("--share", `${(share * 100).toFixed(1)}%`);
    node.append(meter);
  }
  return node;
}
