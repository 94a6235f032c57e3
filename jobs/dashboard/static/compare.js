// Two audits side by side: what changed, for which model and class, and how sure that is.
import { get } from "./api.js";
import { LINES, cell, dots, figure } from "./charts.js";
import { chip, chips, cut, el, estimate, filters, list, name, number, section, select, signed, table, when } from "./dom.js";
import { trail } from "./audit.js";
import { ABOUT, named } from "./fleet.js";

const overlap = (each) => each.overlap === null ? "unknown: one-sided" : each.overlap ? "overlap" : el("span", { class: "apart" }, "do not overlap");
const columns = (get) => [
  { title: "before", kind: "number", get: (row) => get(row)?.before?.value ?? null, cell: (row) => estimate(get(row)?.before) },
  { title: "after", kind: "number", get: (row) => get(row)?.after?.value ?? null, cell: (row) => estimate(get(row)?.after) },
  { title: "change", kind: "number", get: (row) => get(row)?.change ?? null, cell: (row) => signed(get(row)?.change ?? null) },
  { title: "intervals", label: true, get: (row) => String(get(row)?.overlap), cell: (row) => get(row) ? overlap(get(row)) : "–" },
];
const side = (label, fleet, head) => el("div", {}, el("b", {}, label), el("p", {}, el("a", { href: `#/fleet/${encodeURIComponent(fleet)}/${encodeURIComponent(head.id)}` }, when(head.started)), " ", chip(head.outcome)),
  el("p", {}, chips(head.counts)), el("p", { class: "note" }, `${head.samples.toLocaleString("en")} samples of ${head.classes.toLocaleString("en")} classes, audit ${cut(head.audit_id)}`));
const pair = (title, note, rows, get, label) => rows.length ? figure(title, note, dots(rows.map((row) => row.name), [
  { name: "before", colour: LINES[7], symbol: "circle", cells: rows.map((row) => cell(get(row)?.before)) },
  { name: "after", colour: LINES[0], symbol: "diamond", cells: rows.map((row) => cell(get(row)?.after)) },
], label)) : null;

// What the later audit itself tested against its accepted one (tracking/bundle/comparison.py): what changed, with p-values of
// all comparisons together. A file of another form is shown as it is, two levels deep.
const plain = (value) => value === null || typeof value !== "object" ? String(value) : Array.isArray(value) ? value.map(plain).join(", ") : Object.entries(value).map(([key, inner]) => `${key} ${plain(inner)}`).join(", ");
const raw = (answer) => el("dl", { class: "tested" }, Object.entries(answer).flatMap(([key, value]) => [el("dt", {}, cut(key)), el("dd", {}, cut(plain(value), 2000))]));
const changes = (answer) => answer.models.flatMap((model) => (model.series || []).flatMap((series) => [series.overall, ...(series.groups || [])]
  .filter((group) => group && ["worse", "better"].includes(group.flag)).map((group) => ({ ...group, model: model.name, series: series.title }))));
const moved = (answer) => {
  const rows = answer.models.flatMap((model) => (model.moved || []).map((pair) => ({ ...pair, model: model.name })));
  if (!rows.length) return null;
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  return table({
    caption: "Classes that are certainly taken for another more often, or less, than before", rows,
    columns: [
      { title: "model", head: true, kind: "name", get: (row) => row.model, cell: (row) => name(row.model) },
      { title: "predictions", label: true, get: (row) => row.title, cell: (row) => name(row.title, 80) },
      { title: "class", label: true, get: (row) => row.label, cell: (row) => name(row.label) },
      { title: "taken for", label: true, get: (row) => row.predicted, cell: (row) => name(row.predicted || "no class") },
      { title: "before", kind: "number", get: (row) => row.then, cell: (row) => percent(row.then) },
      { title: "now", kind: "number", get: (row) => row.now, cell: (row) => percent(row.now) },
      { title: "difference", kind: "number", get: (row) => row.difference.value, cell: (row) => estimate(row.difference) },
    ],
  }).element;
};
const tested = (answer, before) => {
  if (!answer) return null;
  if (!Array.isArray(answer.models) || !answer.compared_with) return section("Tested by the later audit", raw(answer));
  const other = answer.compared_with === before.audit_id ? "" : " That is not the earlier audit of this page.";
  const made = table({
    caption: "What the test flags, the smallest p first", rows: changes(answer), order: [6, 1], empty: "Nothing is flagged worse or better.",
    columns: [
      { title: "model", head: true, kind: "name", get: (row) => row.model, cell: (row) => name(row.model) },
      { title: "measure", label: true, get: (row) => row.series, cell: (row) => name(row.series, 80) },
      { title: "class", label: true, get: (row) => row.name, cell: (row) => name(row.name) },
      { title: "before", kind: "number", get: (row) => row.then, cell: (row) => number(row.then) },
      { title: "now", kind: "number", get: (row) => row.now, cell: (row) => number(row.now) },
      { title: "difference", kind: "number", get: (row) => row.difference?.value ?? null, cell: (row) => estimate(row.difference) },
      { title: "p", kind: "number", about: "adjusted for all comparisons", get: (row) => row.p, cell: (row) => number(row.p) },
      { title: "flag", label: true, get: (row) => row.flag },
    ],
  });
  const drift = Array.isArray(answer.drift) ? answer.drift.map((each) => `${[each.kind, each.subject].filter(Boolean).join(" ")}: ${each.then || "none"}, now ${each.now || "none"}`) : [];
  return section("Tested by the later audit", el("p", {}, `Against the audit ${cut(answer.compared_with)}, on paired samples: ${answer.worse} worse, ${answer.better} better, of ${answer.comparisons} comparisons; alpha ${answer.alpha}, ${cut(answer.error_rate, 200)}${answer.bound === null || answer.bound === undefined ? "" : `; a false "worse" in all ${answer.looks} audits since the acceptance: at most ${(100 * answer.bound).toPrecision(3)} %`}.${other}`), made.element, moved(answer), drift.length ? el("p", {}, "Besides the scores, these are not what they were:") : null, list(drift));
};

export const compare = async (route) => {
  const [fleet, before, after] = route.parts;
  const ask = (query) => get(["fleets", fleet, "comparison"], { before, after, ...query });
  const choice = { series: route.query.series || "", metric: route.query.metric || "wcr", model: "" };
  let answer = await ask({ series: choice.series });
  const models = el("div"), classes = el("div"), cautions = el("div");
  const series = () => answer.series.find((each) => each.lens === answer.lens);
  const showModels = () => {
    const [short, about] = ABOUT[choice.metric], of = (row) => row.metrics[choice.metric];
    const made = table({
      caption: `Each model's ${about}`, rows: answer.models,
      columns: [
        { title: "model", head: true, kind: "name", get: (row) => row.name, cell: (row) => el("span", {}, name(row.name), row.same_weights ? el("span", { class: "remark" }, "same weights") : null) },
        { title: "verdict", get: (row) => row.after, cell: (row) => el("span", {}, row.before ? chip(row.before) : "absent", " → ", row.after ? chip(row.after) : "absent") },
        ...columns(of),
      ],
    });
    models.replaceChildren(...[pair(`${series()?.title ?? ""}: ${short}`, "Dots are estimates, lines their confidence intervals.", answer.models.slice(0, 40), of, about), made.element].filter(Boolean));
  };
  const showClasses = () => {
    const of = (row) => row.difference;
    const made = table({
      caption: answer.classes.length < answer.total ? `The ${answer.classes.length} largest losses of ${answer.total} classes` : "Every class, the largest loss first", rows: answer.classes,
      columns: [{ title: "class", head: true, kind: "name", get: (row) => row.name, cell: (row) => name(row.name) }, ...columns(of)],
    });
    const heading = `${cut(answer.model, 40)}, class by class`;
    classes.replaceChildren(...(answer.model ? [pair(heading, `The ${Math.min(30, answer.classes.length)} classes that lost most, the largest loss on top.`, answer.classes.slice(0, 30), of, series()?.title ?? ""), made.element].filter(Boolean) : [el("p", { class: "note" }, "No model is in both audits.")]));
  };
  const read = async (query) => {
    answer = await ask(query);
    cautions.replaceChildren(...[list(answer.notes)].filter(Boolean));
  };
  cautions.replaceChildren(...[list(answer.notes)].filter(Boolean));
  const bar = filters(
    select("Measure", named(answer.series), answer.lens, async (value) => { choice.series = value; route.remember({ series: value }); await read(choice); showModels(); showClasses(); }),
    select("Number", Object.entries(ABOUT).map(([key, [short, about]]) => [key, `${short}: ${about}`]), choice.metric, (value) => { choice.metric = value; route.remember({ metric: value }); showModels(); }));
  const which = filters(select("Model", answer.models.map((row) => [row.name, row.name]), answer.model, async (value) => { choice.model = value; await read(choice); showClasses(); }));
  showModels();
  showClasses();
  return {
    title: `${cut(answer.before.audit_id)} and ${cut(answer.after.audit_id)}`,
    content: [
      trail(["Fleets", "#/"], [cut(fleet), `#/fleet/${encodeURIComponent(fleet)}`]), el("h1", { tabindex: -1 }, "Two audits side by side"),
      el("div", { class: "sides" }, side("before", fleet, answer.before), side("after", fleet, answer.after)), cautions, tested(answer.tested, answer.before),
      section("Models", bar, models), section("Classes", which, classes),
    ],
  };
};
