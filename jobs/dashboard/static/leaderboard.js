// Models ranked from their MLflow runs; weights move, and the ranking follows. The mathematics is that of composite.js.
/* global ranking */
import { get } from "./api.js";
import { cell as pointOf, dots, figure } from "./charts.js";
import { count, cut, el, estimate, filters, limits, list, name, number, section, select, table } from "./dom.js";

const PRESETS = [["classes", "accuracy and the worst class"], ["robust", "accuracy, robustness, generalisation"], ["prbench", "accuracy, robustness, generalisation, time"]];
const asEstimate = (answer) => Array.isArray(answer) ? { value: answer[0], low: answer[1], high: answer[2], reason: "" } : { value: null, low: null, high: null, reason: String(answer) };

const scored = (score) => ranking.wide(score)
  ? el("span", { title: limits(score) }, number(score.value), el("span", { class: "limits" }, "wider than the scale")) : estimate(score);

const boardOf = (board) => {
  const weights = board.metrics.map((metric) => metric.weight);
  const drawn = el("div"), holder = el("div");
  const ranked = () => {
    const metrics = board.metrics.map((metric, place) => ({ ...metric, weight: weights[place], lower: board.columns[metric.column].lower }));
    const { scores } = ranking.composite(board.rows, metrics);
    const places = ranking.places(scores), led = ranking.withLeader(scores, places);
    return board.rows.map((row, place) => ({ ...row, place: places[place], led: led[place], score: { ...scores[place], reason: scores[place].lacks.map((each) => each.name).join(", ") } }))
      .sort((a, b) => (a.place ?? Infinity) - (b.place ?? Infinity));
  };
  const show = () => {
    const rows = ranked();
    const made = table({
      caption: "Rows by place; limits are confidence intervals", rows,
      columns: [
        { title: "place", kind: "number", get: (row) => row.place, cell: (row) => row.place === null ? "–" : `${row.place}${row.led && row.place > 1 ? " =" : ""}` },
        { title: "model", head: true, kind: "name", get: (row) => row.name, cell: (row) => el("span", {}, name(row.name), [row.architecture, row.method].some(Boolean) ? el("span", { class: "remark" }, cut([row.architecture, row.method].filter(Boolean).join(", "), 60)) : null) },
        { title: "composite", kind: "number", get: (row) => row.score.value, cell: (row) => scored(row.score) },
        ...board.metrics.map((metric) => ({ title: metric.name, about: board.columns[metric.column].key, kind: "number", get: (row) => asEstimate(row.cells[metric.column]).value, cell: (row) => estimate(asEstimate(row.cells[metric.column])) })),
        { title: "weakest", label: true, get: (row) => row.worst, cell: (row) => name(row.worst || "–") },
      ],
    });
    const shown = rows.slice(0, 40);
    drawn.replaceChildren(figure("Composite score", `1 is the best of every metric among these rows, 0 the worst; lines are ranges from the intervals of all metrics, an arrow says that one goes on.${rows.length > shown.length ? ` The first ${shown.length} of ${rows.length}.` : ""}`, dots(shown.map((row) => row.name), [{ name: "composite", cells: shown.map((row) => pointOf(row.score)) }], "composite score", ranking.SCALE)));
    holder.replaceChildren(made.element, el("p", { class: "note" }, "“=” behind a place: its range reaches that of the first, so the intervals do not separate them."));
  };
  const inputs = el("form", { class: "weights", onsubmit: (event) => event.preventDefault() }, board.metrics.map((metric, place) => {
    const input = el("input", { type: "number", min: 0, max: 10, step: 0.25, value: weights[place], oninput: () => { weights[place] = Math.max(0, Number(input.value) || 0); show(); } });
    return el("label", {}, metric.title ? `${metric.name}: ${cut(metric.title, 40)}` : metric.name, input);
  }));
  show();
  return el("div", {}, list(board.notes), el("details", {}, el("summary", {}, "Weights of the metrics"), inputs), holder, drawn);
};

export const leaderboard = async (route) => {
  const preset = route.query.preset || "classes";
  const answer = await get(["leaderboard"], { preset });
  const holder = el("div");
  const pick = (place) => holder.replaceChildren(...(answer.boards.length ? [section(answer.boards[place].title, boardOf(answer.boards[place]))] : [el("p", {}, "No board.")]));
  pick(0);
  return {
    title: "Leaderboard",
    content: [
      el("h1", { tabindex: -1 }, "Leaderboard"), el("p", { class: "note full" }, `${count(answer.boards.length, "board")}, read from ${answer.source || "no MLflow store"}; a row is ranked only among those of its data set, threat model and samples.`),
      list(answer.notes),
      filters(select("Ranked by", PRESETS, preset, (value) => { route.remember({ preset: value }); route.again(); }),
        answer.boards.length > 1 ? select("Board", answer.boards.map((board, place) => [String(place), board.title]), "0", (value) => pick(Number(value))) : null),
      holder,
    ],
  };
};
