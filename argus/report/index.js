"use strict";
(() => {
  const body = document.querySelector("#jobs tbody"), rows = [...body.rows], command = document.getElementById("command");
  const copy = document.getElementById("copy"), search = document.getElementById("search");
  document.getElementById("choice").hidden = false;

  // By a column: numbers as numbers, and what is unknown last.
  let sorted = -1, order = 1;
  document.querySelectorAll("#jobs th").forEach((head, column) => column > 0 && head.addEventListener("click", () => {
    order = sorted === column ? -order : 1;
    sorted = column;
    const value = row => { const text = row.cells[column].dataset.value; return text === "" || text === "-" ? null : isNaN(text) ? text : +text; };
    rows.sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === null || b === null) return (a === null) - (b === null);
      return order * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    }).forEach(row => body.append(row));
  }));
  search.addEventListener("input", () => rows.forEach(row => {
    row.hidden = !row.textContent.toLowerCase().includes(search.value.toLowerCase());
  }));
  body.addEventListener("change", () => {
    const ids = [...body.querySelectorAll("input:checked")].map(each => each.value);
    command.textContent = ids.length ? `argus report ${ids.join(" ")} -o report.html` : "";
    copy.hidden = !ids.length;
  });
  copy.addEventListener("click", () => navigator.clipboard?.writeText(command.textContent));
})();
