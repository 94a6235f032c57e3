// A fleet: its numbers over time, and its audits, two of which can be compared.
import { get } from "./api.js";
import { figure, lines } from "./charts.js";
import { chip, chips, count, el, filters, name, number, limits, problem, search, section, select, table, waiting, when } from "./dom.js";

// The table of metrics, which the page carries: the worst class first.
export const ABOUT = JSON.parse(document.querySelector("meta[name=classwise-metrics]").content);
export const METRICS = ["wcr", ...Object.keys(ABOUT).filter((key) => key !== "wcr")].map((key) => [key, `${ABOUT[key][1]} (${ABOUT[key][0]})`]);
const PART = 100;
export const dateOf = (audit) => audit.started ? audit.started.slice(0, 16).replace("T", " ") : audit.id;
const link = (fleet, audit) => `#/fleet/${encodeURIComponent(fleet)}/${encodeURIComponent(audit)}`;
export const named = (series) => series.map((each) => [each.lens, each.grouping === "class" ? each.title : `${each.title}, by ${each.grouping}`]);

const overTime = (fleet, route) => {
  const holder = el("div", {}, waiting()), said = el("p", { class: "note", role: "status" });
  const choice = { series: route.query.series || "", metric: route.query.metric || "wcr", model: "" };
  let bar = null;
  const numbers = (answer) => table({
    caption: "The same numbers, a row a model", cards: false,
    columns: [
      { title: "model", head: true, kind: "name", get: (row) => row.model, cell: (row) => name(row.model) },
      ...answer.audits.map((audit, at) => ({
        title: dateOf(audit), kind: "number", get: (row) => row.cells[at]?.[0] ?? null,
        cell: (row) => row.cells[at] ? el("span", {}, number(row.cells[at][0]), el("span", { class: "limits" }, limits({ low: row.cells[at][1], high: row.cells[at][2] })), row.outcomes[at] ? el("span", { class: "limits" }, row.outcomes[at]) : null) : row.outcomes[at] || "–",
      })),
    ],
    rows: answer.lines,
  }).element;
  const show = async () => {
    const answer = await get(["fleets", fleet, "trend"], choice);
    const series = answer.series.find((each) => each.lens === answer.lens);
    const label = METRICS.find(([key]) => key === choice.metric)[1];
    if (!bar) {
      const change = (key) => (value) => { choice[key] = value; if (key !== "model") route.remember({ [key]: value }); show().catch((error) => said.replaceChildren(...(error.problems || []).map(problem))); };
      bar = filters(select("Measure", named(answer.series), answer.lens, change("series")), select("Number", METRICS, choice.metric, change("metric")), search("Model contains", change("model")));
      holder.before(bar);
    }
    const kept = answer.lines.length < answer.models ? ` ${answer.lines.length} of ${answer.models} models, those that do not pass first.` : "";
    const recent = answer.audits.length < answer.total ? ` The latest ${answer.audits.length} of ${answer.total} audits.` : "";
    said.textContent = answer.lines.length ? "" : "No model of that name has this number.";
    const note = `Lines join a model's audits, bars are its intervals, grey lines are models beyond the eighth. Marks: ● pass, ✕ fail, ◆ undecided, ■ error.${kept}${recent}`;
    holder.replaceChildren(...(answer.lines.length && series ? [figure(`${series.title}: ${label}`, note, lines(answer.audits.map(dateOf), answer.lines.map((line) => ({ name: line.model, cells: line.cells, outcomes: line.outcomes })), label), numbers(answer))] : []));
  };
  return { parts: [holder, said], show };
};

const audits = (fleet, first) => {
  let all = first.audits, outcome = "", text = "", offset = PART;
  const chosen = new Set();
  const compare = el("button", { type: "button", disabled: true, onclick: () => {
    const [before, after] = [...chosen].sort();
    location.hash = `#/compare/${[fleet, before, after].map(encodeURIComponent).join("/")}`;
  } }, "Compare the two that are ticked");
  const tick = (row) => el("input", { type: "checkbox", "aria-label": `compare the audit of ${dateOf(row)}`, checked: chosen.has(row.id), onchange: (event) => {
    if (event.target.checked) chosen.add(row.id); else chosen.delete(row.id);
    compare.disabled = chosen.size !== 2;
    compare.textContent = chosen.size > 2 ? `Compare takes two, ${chosen.size} are ticked` : "Compare the two that are ticked";
  } });
  const made = table({
    caption: "Audits, the latest first", order: null, empty: "No audit fits.",
    columns: [
      { title: "compare", kind: "pick-two", cell: (row) => row.problem ? "" : tick(row) },
      { title: "audit", head: true, get: (row) => row.started || row.id, cell: (row) => row.problem ? name(row.id, 80) : el("a", { href: link(fleet, row.id) }, when(row.started)) },
      { title: "verdict", get: (row) => row.outcome, cell: (row) => row.problem ? el("span", { class: "note" }, "cannot be read") : chip(row.outcome) },
      { title: "models", get: (row) => row.models, cell: (row) => row.problem ? el("span", { class: "note" }, `${row.problem.where}: expected ${row.problem.expected}, found ${row.problem.found}`.slice(0, 300)) : chips(row.counts) },
      { title: "samples", kind: "number", get: (row) => row.samples, cell: (row) => row.problem ? "–" : row.samples.toLocaleString("en") },
      { title: "classes", kind: "number", get: (row) => row.classes, cell: (row) => row.problem ? "–" : String(row.classes) },
      { title: "id", label: true, kind: "name", get: (row) => row.audit_id, cell: (row) => name(row.audit_id || "–", 40) },
    ],
    rows: all,
  });
  const said = el("p", { class: "note", role: "status" });
  const show = () => {
    const fits = all.filter((row) => (!outcome || (outcome === "broken" ? row.problem : row.outcome === outcome)) && (!text || `${row.id} ${row.audit_id} ${dateOf(row)}`.toLowerCase().includes(text)));
    made.show(fits);
    said.textContent = `${fits.length} of ${all.length} audits${all.length < first.total ? ` read, of ${first.total}` : ""}.`;
    older.hidden = offset >= first.total;
  };
  const older = el("button", { type: "button", onclick: async () => {
    const more = await get(["fleets", fleet, "audits"], { limit: PART, offset });
    all = [...all, ...more.audits];
    offset += PART;
    show();
  } }, "Read older audits");
  show();
  const bar = filters(select("Verdict", [["", "all"], ...["pass", "fail", "undecided", "error", "broken"].map((each) => [each, each])], "", (value) => { outcome = value; show(); }), search("Date or id contains", (value) => { text = value; show(); }));
  return [bar, said, made.element, older, el("p", {}, compare)];
};

export const fleet = async (route) => {
  const [id] = route.parts;
  const first = await get(["fleets", id, "audits"], { limit: PART });
  const trend = overTime(id, route);
  const content = [
    el("p", { class: "trail" }, el("a", { href: "#/" }, "Fleets")), el("h1", { tabindex: -1 }, name(first.fleet, 120)),
    el("p", { class: "facts" }, count(first.total, "audit")), section("Over time", ...trend.parts), section("Audits", ...audits(id, first)),
  ];
  return { title: first.fleet, content, after: trend.show };
};
