// Figures: drawn by plotly when they come into view, each with its numbers as a table.
import { cut, el } from "./dom.js";

export const LINES = document.querySelector("meta[name=classwise-palette]").content.split(" ");
export const GREY = "#9A9A9A";
const SYMBOLS = { pass: "circle", fail: "x", undecided: "diamond", error: "square" };
export const symbol = (outcome) => SYMBOLS[outcome] || "circle-open";

// Plotly reads a little HTML in texts.
export const safe = (text, limit = 24) => cut(text, limit).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

let library = null;
const plotly = () => {
  library = library || new Promise((resolve, reject) => {
    document.head.append(el("script", { src: "/ui/plotly.js", onload: () => resolve(window.Plotly), onerror: reject }));
  });
  return library;
};

const colour = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
const themed = (layout) => {
  const axes = Object.fromEntries(Object.entries(layout).filter(([key]) => /^[xy]axis/.test(key))
    .map(([key, axis]) => [key, { automargin: true, zeroline: false, gridcolor: colour("--line"), linecolor: colour("--line"), ...axis }]));
  return {
    margin: { l: 10, r: 16, t: 12, b: 10 }, hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { size: 12, color: colour("--fg") }, ...layout, ...axes,
  };
};

const drawn = new Map();
const draw = async (canvas) => {
  const make = drawn.get(canvas);
  const Plotly = await plotly();
  if (!canvas.isConnected) return;
  const room = canvas.parentElement.clientWidth, narrow = room < 640;
  const { data, layout, width } = make(narrow, room);
  canvas.dataset.room = String(room);
  canvas.style.minWidth = width && narrow ? `${width}px` : "";
  await Plotly.react(canvas, data, themed(layout), { responsive: true, displayModeBar: false, scrollZoom: false });
  canvas.classList.add("drawn");
};
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
  }
}, { rootMargin: "400px" });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const canvas of drawn.keys()) if (canvas.classList.contains("drawn")) draw(canvas);
});
// A window of another width, or a phone that is turned: figures are laid out anew.
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    for (const canvas of drawn.keys()) if (canvas.classList.contains("drawn") && canvas.dataset.room !== String(canvas.parentElement.clientWidth)) draw(canvas);
  }, 150);
});
// Figures that are not in the page any more are forgotten.
export const clear = () => {
  for (const canvas of [...drawn.keys()].filter((each) => !each.isConnected)) {
    watcher.unobserve(canvas);
    if (window.Plotly) window.Plotly.purge(canvas);
    drawn.delete(canvas);
  }
};

// `make(narrow, room)`, of the room in pixels, gives { data, layout, width }; width is the least, on a narrow screen, and then scrolls.
export const figure = (title, note, make, numbers) => {
  const canvas = el("div", { class: "canvas" });
  drawn.set(canvas, make);
  watcher.observe(canvas);
  return el("figure", { class: "plot" },
    el("figcaption", {}, el("h3", { dir: "auto" }, title), note ? el("p", { class: "note", dir: "auto" }, note) : null),
    el("div", { class: "scroll", role: "region", "aria-label": `${title}, figure`, tabindex: 0 }, canvas),
    numbers ? el("details", {}, el("summary", {}, "The same numbers as a table"), numbers) : null);
};

export const ticks = (names, limit = 24) => ({
  tickmode: "array", tickvals: names.map((_, place) => place), ticktext: names.map((text) => safe(text, limit)),
});
const around = (axis, cells) => ({
  [`error_${axis}`]: {
    type: "data", symmetric: false, thickness: 1.6, width: 3,
    array: cells.map((cell) => cell && cell[2] !== null ? Math.max(0, cell[2] - cell[0]) : 0),
    arrayminus: cells.map((cell) => cell && cell[1] !== null ? Math.max(0, cell[0] - cell[1]) : 0),
  },
});
export const cell = (estimate) => estimate && estimate.value !== null ? [estimate.value, estimate.low, estimate.high] : null;
const shown = (value) => value === null || value === undefined ? "undefined" : value.toFixed(4);
export const hover = (lines, at) => [...lines.map((text) => safe(text, 200)),
  at ? `${shown(at[0])}${at[1] === null ? "" : `, at least ${shown(at[1])}`}${at[2] === null ? "" : `, at most ${shown(at[2])}`}` : "undefined"].join("<br>");

// Arrows at the ends of an axis that is cut, where an interval goes on.
const arrows = (marks, [left, right]) => [[left, "triangle-left", (each) => each[1] !== null && each[1] < left], [right, "triangle-right", (each) => each[2] !== null && each[2] > right]].map(([end, arrow, beyond]) => {
  const rows = marks.flatMap((mark) => mark.cells.map((each, row) => each && beyond(each) ? row : -1)).filter((row) => row >= 0);
  return { type: "scatter", mode: "markers", x: rows.map(() => end), y: rows, marker: { symbol: arrow, size: 10, color: LINES[0] }, cliponaxis: false, hoverinfo: "skip", showlegend: false };
});
const within = (each, [left, right]) => each && [each[0], each[1] === null ? null : Math.max(left, each[1]), each[2] === null ? null : Math.min(right, each[2])];

// Categories from the top, marks side by side with their intervals: [{ name, cells, colour, symbol }].
// `ends` cuts the axis: an interval that goes on beyond them ends in an arrow.
export const dots = (categories, marks, label, ends = null) => (narrow) => ({
  data: [...marks.map((mark, place) => ({
    type: "scatter", mode: "markers", name: safe(mark.name, 40), cliponaxis: false,
    x: mark.cells.map((each) => each ? each[0] : null),
    y: categories.map((_, row) => row + (place - (marks.length - 1) / 2) * 0.24),
    ...around("x", ends ? mark.cells.map((each) => within(each, ends)) : mark.cells), hoverinfo: "text",
    text: mark.cells.map((each, row) => hover([categories[row], mark.name], each)),
    marker: { size: 9, color: mark.colour || LINES[place % 8], symbol: mark.symbol || ["circle", "square", "diamond"][place % 3] },
  })), ...(ends ? arrows(marks, ends) : [])],
  layout: {
    height: 110 + Math.max(4, categories.length) * (marks.length > 1 ? 28 : 22),
    xaxis: { title: { text: safe(label, narrow ? 40 : 80), font: { size: 12 }, standoff: 8 }, rangemode: "tozero", nticks: 7, ...(ends ? { range: ends } : {}) },
    yaxis: { ...ticks(categories, narrow ? 14 : 30), range: [categories.length - 0.4, -0.6], ticklabelstandoff: 5 },
    showlegend: marks.length > 1, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
  },
});

// Lines over named moments: [{ name, cells, outcomes }], the first eight in colour.
export const lines = (moments, series, label) => (narrow) => ({
  data: series.map((line, place) => ({
    type: "scatter", mode: "lines+markers", name: safe(line.name, narrow ? 22 : 36), connectgaps: true, cliponaxis: false,
    x: moments.map((_, at) => at + (place - (series.length - 1) / 2) * Math.min(0.05, 0.5 / series.length)),
    y: line.cells.map((each) => each ? each[0] : null),
    ...(place < 8 ? around("y", line.cells) : {}), hoverinfo: "text",
    text: line.cells.map((each, at) => hover([line.name, `${moments[at]}${line.outcomes[at] ? `, ${line.outcomes[at]}` : ""}`], each)),
    line: { color: place < 8 ? LINES[place] : GREY, width: place < 8 ? 2 : 1 },
    marker: { size: place < 8 ? 9 : 6, symbol: line.outcomes.map(symbol), color: place < 8 ? LINES[place] : GREY },
    showlegend: place < 8,
  })).reverse(),
  layout: {
    height: 430, showlegend: series.length > 1, legend: { orientation: "h", y: narrow ? -0.4 : -0.14, yanchor: "top", x: 0, traceorder: "reversed" },
    xaxis: { ...ticks(moments, 24), nticks: 8, ...thinned(moments, narrow ? 4 : 12), ...(narrow ? { tickangle: -35 } : {}), range: [-0.4, moments.length - 0.6] },
    yaxis: { title: { text: safe(label, 60), standoff: 8 } },
  },
});
const thinned = (names, most) => {
  const step = Math.max(1, Math.ceil(names.length / most));
  const kept = names.map((_, place) => place).filter((place) => (names.length - 1 - place) % step === 0);
  return { tickvals: kept, ticktext: kept.map((place) => safe(names[place], 24)) };
};

// Numbers stand in cells of at least so many pixels; on a narrow screen the matrix is as wide as that takes, and scrolls.
const CELL = 34;
export const heatmap = (rows, columns, values) => (narrow, room) => {
  const beside = 130 + 7 * Math.min(narrow ? 14 : 34, Math.max(...rows.map((row) => row.length))), least = beside + CELL * columns.length;
  const written = rows.length * columns.length <= 400 && (narrow || least <= room);
  return {
    width: Math.max(least, room),
    data: [{
      type: "heatmap", z: values, colorscale: "Cividis", xgap: 1, ygap: 1, hoverinfo: "text",
      hovertext: values.map((line, row) => line.map((value, column) => hover([rows[row], columns[column]], value === null ? null : [value, null, null]))),
      colorbar: { thickness: 12 },
      ...(written ? { text: values.map((line) => line.map((value) => value === null ? "" : value.toFixed(2))), texttemplate: "%{text}", textfont: { size: 10 } } : {}),
    }],
    layout: {
      height: 170 + Math.max(4, rows.length) * 24,
      xaxis: { ...ticks(columns, 18), tickangle: -45, showgrid: false, ticklabelstandoff: 5 },
      yaxis: { ...ticks(rows, narrow ? 14 : 34), autorange: "reversed", showgrid: false, ticklabelstandoff: 5 },
    },
  };
};
