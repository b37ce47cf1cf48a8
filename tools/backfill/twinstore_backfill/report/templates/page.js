// The page is complete without this: it only narrows and sorts what is there.
(() => {
  const rows = [...document.querySelectorAll("main tbody tr, main li.cause")];
  const nav = document.querySelector("nav");
  const label = document.createElement("label");
  const input = document.createElement("input");
  const found = document.createElement("output");
  label.className = "search";
  input.type = "search";
  label.append("Search ", input, " ", found);
  nav.append(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += !row.hidden;
      if (words.length && !row.hidden) for (let at = row.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    }
    found.textContent = words.length ? `${count} rows` : "";
  });
  const value = (row, at) => row.cells[at].textContent.trim();
  const number = (text) => Number(text.replace(/[,\s%]/g, ""));
  for (const table of document.querySelectorAll("main table")) {
    const body = table.tBodies[0];
    if (body.rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const order = (one, other) => {
          const [left, right] = [value(one, at), value(other, at)];
          const both = number(left) - number(right);
          return Number.isNaN(both) ? left.localeCompare(right) : both;
        };
        body.append(...[...body.rows].sort((one, other) => (up ? order(one, other) : order(other, one))));
      });
    });
  }
})();
