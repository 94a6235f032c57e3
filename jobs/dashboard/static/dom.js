// Elements, tables and words. Whatever comes from the server is set as text, never as markup.
/* global classwise */

export const el = (tag, props = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
};

// A name that a user gave: isolated, for it may run from right to left, and cut when it is long.
export const cut = (text, limit = 60) => {
  const clean = String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ").trim() || "(empty)";
  return clean.length > limit ? `${clean.slice(0, limit - 1)}…` : clean;
};
export const name = (text, limit = 60) => {
  const shown = cut(text, limit);
  return el("bdi", { title: shown === text ? null : String(text).slice(0, 1000) }, shown);
};

const SIGNS = { pass: "✓", fail: "✗", undecided: "?", error: "!" };
export const chip = (outcome, count = "") => el("span", { class: `chip ${SIGNS[outcome] ? outcome : ""}` },
  el("span", { "aria-hidden": "true" }, SIGNS[outcome] || "·"), ` ${count === "" ? "" : `${count} `}${outcome}`);
export const chips = (counts) => Object.entries(counts).map(([outcome, count]) => chip(outcome, count));

export const { number } = classwise;
export const limits = ({ low, high }) => {
  if (low === null && high === null) return "";
  if (high === null) return `at least ${number(low)}`;
  if (low === null) return `at most ${number(high)}`;
  return `${number(low)} to ${number(high)}`;
};
export const interval = (estimate) => {
  if (estimate.value === null) return estimate.reason ? `undefined (${estimate.reason})` : "undefined";
  const around = limits(estimate);
  return around ? `${number(estimate.value)} (${around})` : number(estimate.value);
};
export const signed = (value) => value === null ? "–" : `${value > 0 ? "+" : value < 0 ? "−" : ""}${number(Math.abs(value))}`;

export const estimate = (each) => {
  if (!each || each.value === null) return el("span", { title: each ? interval(each) : "not measured" }, "–");
  const around = limits(each);
  return el("span", {}, number(each.value), around ? el("span", { class: "limits" }, around) : null);
};
export const when = (text) => text ? el("time", { datetime: text }, `${text.slice(0, 16).replace("T", " ")} UTC`) : "–";
export const count = (value, noun, many = `${noun}s`) => `${value.toLocaleString("en")} ${value === 1 ? noun : many}`;

export const waiting = () => el("p", { class: "waiting" }, "reading ...");
export const problem = (fault) => el("div", { class: "problem", role: "alert" },
  el("p", {}, el("b", {}, cut(fault.where, 200)), ` expected ${cut(fault.expected, 400)}, found ${cut(fault.found, 400)}`),
  fault.remedy ? el("p", {}, cut(fault.remedy, 400)) : null);

export const select = (label, options, value, change) => {
  const made = el("select", { onchange: () => change(made.value) }, options.map(([key, text]) => classwise.option(key, cut(text, 80))));
  made.value = options.some(([key]) => key === value) ? value : options[0]?.[0] ?? "";
  return el("label", {}, label, made);
};
export const search = (label, change, value = "") => {
  let waiting = 0;
  const made = el("input", { type: "search", autocomplete: "off", value, oninput: () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change(made.value.trim().toLowerCase()), 120);
  } });
  return el("label", {}, label, made);
};
export const filters = (...parts) => el("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, ...parts);
export const section = (title, ...parts) => el("section", { "aria-label": title }, el("h2", {}, title), ...parts);
// What stands between backticks is code, where none is without its fellow.
export const coded = (text) => {
  const parts = text.split("`");
  return parts.length % 2 ? parts.map((part, at) => at % 2 ? el("code", {}, part) : part) : [text];
};
export const list = (sentences) => sentences.length ? el("ul", { class: "words" }, sentences.map((text) => el("li", { dir: "auto" }, coded(cut(text, 1500))))) : null;

// A table that sorts by its columns and shows so many rows until asked for more.
// A column: { title, about, get: row => value to sort by, cell: row => content, kind: "number" | "name" | ... , head }.
const PAGE = 60;
export const table = ({ caption, columns, rows, order = null, cards = true, page = PAGE, empty = "Nothing to show." }) => {
  let [column, direction] = order || [-1, 1];
  let shown = page, all = rows;
  const body = el("tbody");
  const more = el("button", { type: "button", hidden: true, onclick: () => { shown += 5 * page; fill(); } }, "Show more");
  const text = el("caption", {}, caption);
  const note = el("p", { class: "note", role: "status" });
  const head = el("thead", {}, el("tr", {}, columns.map((each, place) => el("th", { scope: "col", class: each.kind },
    each.get ? el("button", { type: "button", title: each.about, onclick: () => sort(place) }, each.title) : el("span", { title: each.about }, each.title)))));
  const sorted = () => column < 0 ? all : [...all].sort((a, b) => classwise.compare(columns[column].get(a), columns[column].get(b), direction));
  const fill = () => {
    const chosen = sorted();
    body.replaceChildren(...chosen.slice(0, shown).map((row) => el("tr", { class: row.problem ? "broken" : null }, columns.map((each) => el(
      each.head ? "th" : "td",
      { class: each.kind, scope: each.head ? "row" : null, "data-label": each.kind === "number" || each.label ? each.title : null },
      each.cell ? each.cell(row) : String(each.get(row) ?? "–"),
    )))));
    more.hidden = chosen.length <= shown;
    note.textContent = chosen.length ? (chosen.length > shown ? `${shown} of ${chosen.length.toLocaleString("en")} rows shown.` : "") : empty;
    if (column >= 0) classwise.mark(head, column, direction);
  };
  const sort = (place) => {
    [column, direction] = [place, place === column ? -direction : 1];
    fill();
  };
  fill();
  const made = el("table", { class: cards ? "cards" : null }, text, head, body);
  const element = el("div", {}, el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, made), note, more);
  return { element, show: (rows) => { all = rows; shown = page; fill(); } };
};

export const live = (text) => { document.getElementById("live").textContent = text; };
