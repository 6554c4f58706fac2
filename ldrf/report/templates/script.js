"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1; // what has no figure comes last
        const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentElement.querySelector("code");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // no clipboard here: it is selected, ready for Ctrl-C
    }
  });
}
const closed = () => document.querySelectorAll("details:not([open])");
let opened = [];
addEventListener("beforeprint", () => (opened = [...closed()]).forEach((part) => (part.open = true)));
addEventListener("afterprint", () => opened.forEach((part) => (part.open = false)));
addEventListener("hashchange", () => document.querySelector(`details:target`)?.setAttribute("open", ""));
