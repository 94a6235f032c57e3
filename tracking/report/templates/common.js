"use strict";
// What the pages share: comparing cells, marking the column that a table is sorted by, options of a select.
const classwise = (() => {
  const collator = new Intl.Collator(undefined, { numeric: true });
  const missing = (value) => value === null || value === "";
  // Missing values come last in both directions.
  const compare = (a, b, direction) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return direction * (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)));
  };
  const mark = (head, column, direction) => [...head.querySelectorAll("th")].forEach((cell, place) => {
    if (place === column) cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
  const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text.length > 80 ? text.slice(0, 79) + "…" : text });
  // As tracking/report/words.py has it; a test holds the two together.
  const number = (value) => {
    if (value === null || value === undefined) return "undefined";
    const size = Math.abs(value);
    if (size > 0 && size < 0.00005) return value > 0 ? "<0.0001" : ">-0.0001";
    return size >= 0.0995 || value === 0 ? value.toFixed(3) : value.toFixed(4);
  };
  return { compare, mark, number, option };
})();
