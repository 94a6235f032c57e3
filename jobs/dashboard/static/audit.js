// One audit of a fleet: verdict, a row a model, classes by models. And one model of it: its card.
import { get } from "./api.js";
import { cell, dots, figure, heatmap } from "./charts.js";
import { chip, chips, count, cut, el, estimate, filters, list, name, number, problem, search, section, select, table, waiting, when } from "./dom.js";
import { ABOUT, named } from "./fleet.js";
import { hardest, why } from "./why.js";

const base = (fleet, audit) => `#/fleet/${encodeURIComponent(fleet)}/${encodeURIComponent(audit)}`;
export const trail = (...steps) => el("p", { class: "trail" }, steps.flatMap(([text, href], place) => [place ? " › " : "", el("a", { href }, text)]));
// Only addresses of the web become links: a bundle is a file that anyone may have written.
const web = (address) => /^https?:\/\//.test(address);
const share = (each) => !each || each.value === null ? "–" : `${(100 * each.value).toFixed(1)} %`;
const tenth = (rows) => rows.some((row) => row.metrics.p10?.value != null) ? [metric("p10")] : [];
const metric = (key) => ({ title: ABOUT[key][0], about: ABOUT[key][1], kind: "number", get: (row) => row.metrics[key]?.value ?? null, cell: (row) => estimate(row.metrics[key]) });

const modelsTable = (fleet, audit, answer) => {
  let outcome = "", text = "";
  const made = table({
    caption: "Models, those that do not pass first; limits are confidence intervals",
    columns: [
      { title: "model", head: true, kind: "name", get: (row) => row.name, cell: (row) => el("a", { href: `${base(fleet, audit)}/${row.index}` }, name(row.name)) },
      { title: "verdict", get: (row) => row.outcome, cell: (row) => chip(row.outcome) },
      { title: "why", kind: "why", get: (row) => row.why },
      metric("aggregate"), metric("wcr"),
      { title: "weakest", label: true, get: (row) => row.worst, cell: (row) => name(row.worst || "–") },
      ...(answer.models.some((row) => row.refuted) ? [{ title: "refuted", about: "share of the claims that attacks refuted", kind: "number", get: (row) => row.refuted?.value ?? null, cell: (row) => share(row.refuted) }] : []),
      ...tenth(answer.models), metric("rdi"), metric("nrgc"), metric("fp"),
    ],
    rows: answer.models, empty: "No model fits.",
  });
  const said = el("p", { class: "note", role: "status" });
  const show = () => {
    const fits = answer.models.filter((row) => (!outcome || row.outcome === outcome) && (!text || row.name.toLowerCase().includes(text)));
    made.show(fits);
    said.textContent = `${fits.length} of ${count(answer.models.length, "model")}.`;
  };
  show();
  const outcomes = ["pass", "fail", "undecided", "error"].filter((each) => answer.models.some((row) => row.outcome === each));
  const bar = [select("Verdict", [["", "all"], ...outcomes.map((each) => [each, each])], "", (value) => { outcome = value; show(); }), search("Model contains", (value) => { text = value; show(); })];
  return { bar, parts: [said, made.element] };
};

const classMap = (fleet, audit, lens) => {
  const holder = el("div", {}, waiting());
  let worst = "30";
  const show = async () => {
    const answer = await get(["fleets", fleet, "audits", audit, "classes"], { series: lens, worst });
    if (!answer.classes.length) { holder.replaceChildren(el("p", { class: "note" }, "Nothing was measured class by class.")); return; }
    const kept = answer.classes.length < answer.total ? ` The ${answer.classes.length} weakest of ${answer.total.toLocaleString("en")} classes.` : "";
    const names = answer.classes.map((each) => each.name);
    const numbers = table({
      caption: "The same numbers, a row a class", cards: false, rows: answer.classes.map((each, place) => ({ ...each, place })),
      columns: [{ title: "class", head: true, kind: "name", get: (row) => row.name, cell: (row) => name(row.name) },
        ...answer.models.map((model, line) => ({ title: cut(model, 24), kind: "number", get: (row) => answer.values[line][row.place], cell: (row) => answer.values[line][row.place] === null ? "–" : number(answer.values[line][row.place]) }))],
    }).element;
    holder.replaceChildren(...answer.problems.map(problem), figure(`Classes by models, ${answer.title}`, `The mean score of each class under each model; darker is weaker.${kept}`, heatmap(answer.models, names, answer.values), numbers));
  };
  const bar = filters(select("Classes", [["10", "the 10 weakest"], ["30", "the 30 weakest"], ["100", "the 100 weakest"], ["200", "the 200 weakest"]], worst, (value) => { worst = value; show(); }));
  return { parts: [bar, holder], show };
};

const links = (answer) => [
  web(answer.links.run_url) ? el("p", {}, el("a", { href: answer.links.run_url, rel: "noreferrer" }, "Its run in MLflow")) : null,
  answer.links.mlflow && !web(answer.links.run_url) ? el("p", { class: "note full" }, "In MLflow: ", el("code", {}, `mlflow ui --backend-store-uri ${answer.links.mlflow}`)) : null,
  el("p", { class: "note full" }, "Bundle and report: ", el("code", {}, answer.links.folder)),
  el("p", { class: "note full" }, "samples ", name(answer.samples, 200), ", digest ", el("code", {}, answer.content.slice(0, 12))),
  el("details", {}, el("summary", {}, "Versions"), el("ul", {}, Object.entries(answer.versions).map(([key, value]) => el("li", {}, `${key} ${value}`)))),
];

export const audit = async (route) => {
  const [fleet, id] = route.parts;
  const answer = await get(["fleets", fleet, "audits", id], { series: route.query.series });
  const models = modelsTable(fleet, id, answer), map = classMap(fleet, id, answer.lens), hard = hardest(fleet, id);
  const measure = select("Measure", named(answer.series), answer.lens, (value) => { route.remember({ series: value }); route.again(); });
  const content = [
    trail(["Fleets", "#/"], [cut(answer.fleet), `#/fleet/${encodeURIComponent(fleet)}`]),
    el("h1", { tabindex: -1 }, name(answer.fleet, 120), " ", chip(answer.head.outcome)),
    el("p", { class: "facts" }, el("span", {}, "finished ", when(answer.head.finished)), el("span", {}, `${count(answer.head.models, "model")}, ${count(answer.head.samples, "sample")}, ${count(answer.head.classes, "class", "classes")}`), el("span", {}, "audit ", name(answer.head.audit_id))),
    el("p", { class: "lead" }, answer.verdict), ...answer.advice.map((text) => el("p", { dir: "auto" }, cut(text, 600))),
    answer.why.length ? section("Why", list(answer.why)) : null,
    answer.gates.length ? el("ul", { class: "gates" }, answer.gates.map((gate) => el("li", {}, el("code", { dir: "auto" }, cut(gate.text, 300)), " ", chips(gate.counts)))) : el("p", { class: "note" }, "No gate was set, so nothing could fail."),
    answer.earlier ? el("p", {}, el("a", { href: `#/compare/${[fleet, answer.earlier, id].map(encodeURIComponent).join("/")}` }, "Compare with the audit before")) : null,
    section("Models", filters(answer.series.length ? measure : null, ...models.bar), ...models.parts),
    section("Classes", ...map.parts),
    hard.holder,
    answer.words.length ? section("How far to trust it", list(answer.words)) : null,
    answer.steps.length ? section("What to do next", list(answer.steps)) : null,
    section("Where it is", ...links(answer)),
  ];
  return { title: `${cut(answer.fleet)}: ${answer.head.outcome}`, content, after: () => Promise.all([map.show(), hard.show()]) };
};

const classes = (answer, series) => {
  const shown = answer.classes.slice(0, 40);
  const rows = shown.map((row) => row.name);
  const kept = shown.length < answer.total ? ` The ${shown.length} weakest of ${answer.total.toLocaleString("en")} classes.` : "";
  let text = "", weak = false;
  const made = table({
    caption: answer.classes.length < answer.total ? `The ${answer.classes.length} weakest of ${answer.total} classes` : "Every class", order: [2, 1], empty: "No class fits.",
    columns: [
      { title: "class", head: true, kind: "name", get: (row) => row.name, cell: (row) => el("span", {}, name(row.name), row.worst || row.close ? el("span", { class: "remark" }, row.worst ? "worst" : "not separated from the worst") : null) },
      { title: "n", kind: "number", about: "samples that count", get: (row) => row.n },
      { title: "score", kind: "number", get: (row) => row.score.value, cell: (row) => row.score.value === null ? estimate(row.score) : number(row.score.value) },
      { title: "at least", kind: "number", get: (row) => row.score.low, cell: (row) => row.score.low === null ? "–" : number(row.score.low) },
      { title: "at most", kind: "number", get: (row) => row.score.high, cell: (row) => row.score.high === null ? "–" : number(row.score.high) },
    ],
    rows: answer.classes,
  });
  const show = () => made.show(answer.classes.filter((row) => (!weak || row.worst || row.close) && (!text || row.name.toLowerCase().includes(text))));
  const check = el("input", { type: "checkbox", onchange: () => { weak = check.checked; show(); } });
  const note = `Dots are means, lines ${100 * (1 - series.delta)} % intervals that hold together (${series.method}).${kept}`;
  return [
    shown.length ? figure(`${series.title}, class by class`, note, dots(rows, [{ name: series.title, cells: shown.map((row) => cell(row.score)) }], series.unit ? `${series.title} (${series.unit})` : series.title)) : null,
    filters(search("Class contains", (value) => { text = value; show(); }), el("label", { class: "check" }, check, "only the worst, and those not separated from it")),
    made.element,
  ];
};

const brackets = (answer) => answer.length ? section("Proved, claimed, broken", ...answer.map(bracket)) : null;

const bracket = (answer) => {
  const names = answer.classes.map((each) => each.name);
  const marks = answer.marks.map((label, place) => ({ name: label, cells: answer.values[place].map((value) => value === null ? null : [value, null, null]) }));
  const numbers = table({
    caption: "The same numbers, a row a class", rows: answer.classes.map((each, place) => ({ ...each, place })),
    columns: [{ title: "class", head: true, get: (row) => row.name, cell: (row) => name(row.name) }, ...answer.marks.map((label, line) => ({ title: label, kind: "number", get: (row) => answer.values[line][row.place], cell: (row) => number(answer.values[line][row.place]) }))],
  }).element;
  return figure(`Proved, claimed, broken: ${answer.unit}`, `Class means in ${answer.unit}: robustness lies between the certified radius (proved) and the smallest perturbation found (broken). GREAT claims a radius; a claim to the right of the perturbation found is refuted.`, dots(names, marks, answer.unit), numbers);
};

const gaps = (answer) => answer.length ? section("Gaps between groups", table({
  caption: "The largest gap of all decisions “it is this class or not”, by attribute; 0 is equal", rows: answer,
  columns: [
    { title: "attribute", head: true, kind: "name", get: (row) => row.grouping, cell: (row) => name(row.grouping) },
    { title: "metric", label: true, get: (row) => row.title },
    { title: "gap", kind: "number", get: (row) => row.gap.value, cell: (row) => estimate(row.gap) },
    { title: "class", label: true, get: (row) => row.task, cell: (row) => name(row.task || "–") },
  ],
}).element) : null;

const attacks = (answer) => answer.length ? section("Attacks", table({
  caption: "Whether each attack was adequate: the numbers of an inadequate one are no evidence of robustness", rows: answer,
  columns: [
    { title: "attack", head: true, kind: "name", get: (row) => row.name, cell: (row) => name(row.name) },
    { title: "adequacy", get: (row) => row.adequacy },
    { title: "why", kind: "why", get: (row) => row.signs.map((sign) => sign.sentence).join(" ") || row.reasons.join("; ") },
    { title: "probed", kind: "number", get: (row) => row.probed, cell: (row) => row.probed.toLocaleString("en") },
  ],
}).element) : null;

export const model = async (route) => {
  const [fleet, id, index] = route.parts;
  const answer = await get(["fleets", fleet, "audits", id, "models", index], { series: route.query.series });
  const series = answer.series.find((each) => each.lens === answer.lens);
  const measures = table({
    caption: "Every measure of this model, with intervals", rows: answer.series,
    columns: [
      { title: "measure", head: true, kind: "name", get: (row) => row.title, cell: (row) => el("span", {}, name(row.title, 80), row.grouping === "class" ? null : ` by ${row.grouping}`) },
      metric("aggregate"), metric("wcr"),
      { title: "weakest", label: true, get: (row) => row.worst, cell: (row) => name(row.worst || "–") },
      ...tenth(answer.series), metric("rdi"), metric("nrgc"), metric("fp"),
      ...(answer.series.some((row) => row.refuted) ? [{ title: "refuted", kind: "number", get: (row) => row.refuted?.value ?? null, cell: (row) => share(row.refuted) }] : []),
      ...(answer.series.some((row) => row.gap) ? [{ title: "train − test", kind: "number", get: (row) => row.gap?.value ?? null, cell: (row) => estimate(row.gap) }] : []),
    ],
  });
  const reasons = why(fleet, id, index);
  const judged = new Set(answer.gates.map((gate) => `${gate.text}: ${gate.reason}`));
  const content = [
    trail(["Fleets", "#/"], [cut(fleet), `#/fleet/${encodeURIComponent(fleet)}`], ["audit", base(fleet, id)]),
    el("h1", { tabindex: -1 }, name(answer.name, 120), " ", chip(answer.outcome)),
    el("p", { class: "facts" }, el("span", {}, "audited ", when(answer.head.finished)), el("span", {}, `threat model ${answer.threat}`), el("span", {}, "digest ", el("code", {}, answer.digest.slice(0, 12)))),
    section("Verdict",
      answer.gates.length ? el("ul", { class: "gates" }, answer.gates.map((gate) => el("li", {}, chip(gate.outcome), " ", el("code", { dir: "auto" }, cut(gate.text, 300)), " ", el("span", { dir: "auto" }, cut(gate.reason, 600))))) : el("p", { class: "note" }, "No gate was set."),
      list(answer.reasons.filter((text) => !judged.has(text)))),
    reasons.holder,
    section("Measures", measures.element, list([...answer.series.map((each) => each.words), ...answer.notes])),
    attacks(answer.attacks),
    brackets(answer.brackets),
    gaps(answer.gaps),
    series ? section("Class by class", filters(select("Measure", named(answer.series), answer.lens, (value) => { route.remember({ series: value }); route.again(); })), ...classes(answer, series)) : null,
  ];
  return { title: cut(answer.name), content, after: reasons.show };
};
