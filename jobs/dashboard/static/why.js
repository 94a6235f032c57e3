// Why a class of a model is weak: what it is taken for, and samples before and after an attack. Read when the page is there.
import { get } from "./api.js";
import { figure, heatmap } from "./charts.js";
import { cut, el, estimate, filters, name, number, section, select, search, table, waiting } from "./dom.js";

const MOST_DRAWN = 40, PAGE = 12;
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;

const confusions = (answer) => {
  if (!answer.parts.length) return null;
  const named = (place) => place < 0 ? "no class" : answer.classes[place] ?? String(place);
  const holder = el("div");
  let part = answer.parts.find((each) => each.attack) || answer.parts[0], text = "";
  const show = () => {
    const shares = new Map(part.cells.map((each) => [`${each[0]},${each[1]}`, each[2] / each[3]]));
    const order = part.order.length && part.order.length <= MOST_DRAWN ? part.order : null;
    const names = (order || []).map(named);
    const rows = part.cells.filter((each) => each[0] !== each[1]).map((each) => ({ from: named(each[0]), to: named(each[1]), cell: each, share: each[2] / each[3] }))
      .filter((row) => !text || `${row.from} ${row.to}`.toLowerCase().includes(text));
    const pairs = table({
      caption: `Pairs of classes ${part.under}, ${text || rows.length <= PAGE ? "" : `the ${PAGE} largest of ${rows.length.toLocaleString("en")}; a search finds the others; `}limits of all pairs hold together`, rows: text ? rows : rows.slice(0, PAGE), order: [3, -1], empty: "No sample goes to another class.",
      columns: [
        { title: "class", head: true, kind: "name", get: (row) => row.from, cell: (row) => name(row.from) },
        { title: "taken for", label: true, get: (row) => row.to, cell: (row) => name(row.to) },
        { title: "samples", kind: "number", get: (row) => row.cell[2], cell: (row) => `${row.cell[2]} of ${row.cell[3]}` },
        { title: "share", kind: "number", get: (row) => row.share, cell: (row) => percent(row.share) },
        { title: "at least", kind: "number", get: (row) => row.cell[4], cell: (row) => percent(row.cell[4]) },
        { title: "at most", kind: "number", get: (row) => row.cell[5], cell: (row) => percent(row.cell[5]) },
      ],
    });
    holder.replaceChildren(...[
      order ? figure(`What the classes are taken for, ${part.under}`, "A row is a class, a column what its samples are taken for; lighter is more.", heatmap(names, names, order.map((from) => order.map((to) => shares.get(`${from},${to}`) ?? 0)))) : null,
      part.unsound ? el("p", { class: "note" }, "This attack was inadequate on the model: a better one leads at least as many astray.") : null,
      pairs.element, answer.cut ? el("p", { class: "note" }, "The largest shares; the bundle has all.") : null,
    ].filter(Boolean));
  };
  show();
  const under = select("Predictions", answer.parts.map((each, place) => [String(place), each.under]), String(answer.parts.indexOf(part)), (value) => { part = answer.parts[Number(value)]; show(); });
  return section("What the classes are taken for", filters(under, search("Class contains", (value) => { text = value; show(); })), holder);
};

const picture = (source, alt, caption) => el("div", {}, el("img", { src: source, alt, loading: "lazy" }), el("span", { class: "note" }, caption));
const example = (answer, each) => {
  const [label, before, after] = [each.label, each.before, each.after].map((place) => place < 0 ? "no class" : cut(answer.classes[place] ?? place, 40));
  const id = each.key ? cut(each.key, 60) : `sample ${each.id}`;
  const stronger = `${each.gain >= 10 ? Math.round(each.gain) : Number(each.gain.toPrecision(2))}x`;
  return el("figure", { class: "example" },
    el("figcaption", {}, el("b", {}, el("bdi", {}, label), " → ", el("bdi", {}, after))),
    el("div", { class: "trio" },
      picture(each.pictures[0], `${id}, class ${label}, predicted ${before}`, `original: ${before}`),
      picture(each.pictures[1], `${id} after the attack, predicted ${after}`, `adversarial: ${after}`),
      picture(each.pictures[2], `the change, ${stronger} as strong`, `change, ${stronger} as strong`)),
    el("p", { class: "note" }, `${id}; L2 ${number(each.l2)}, Linf ${number(each.linf)}; margin ${number(each.margin_before)} before, ${number(each.margin_after)} after; number ${each.rank} of ${each.of} that fell.`));
};

const gallery = (answer) => {
  if (!answer.entries.length) return null;
  const grid = el("div", { class: "gallery" });
  let label = "", after = "", shown = PAGE;
  const more = el("button", { type: "button", onclick: () => { shown += 2 * PAGE; show(); } }, "Show more samples");
  const choices = (key) => [["", "all"], ...[...new Set(answer.entries.map((each) => each[key]))].map((place) => [String(place), answer.classes[place] ?? "no class"])];
  const show = () => {
    const fits = answer.entries.filter((each) => (!label || String(each.label) === label) && (!after || String(each.after) === after));
    grid.replaceChildren(...fits.slice(0, shown).map((each) => example(answer, each)));
    more.hidden = fits.length <= shown;
  };
  show();
  const bar = filters(select("Class", choices("label"), "", (value) => { label = value; show(); }), select("Goes to", choices("after"), "", (value) => { after = value; show(); }));
  const note = answer.entries.length < answer.total ? `${answer.entries.length} of ${answer.total} samples; the bundle has all.` : "";
  return section("Samples before and after an attack", bar, grid, more, note ? el("p", { class: "note" }, note) : null);
};

const thumb = (source, alt) => el("img", { class: "thumb", src: source, alt, loading: "lazy" });

const slices = (rows) => rows.length ? section("Weak groups that nobody named",
  el("p", { class: "note" }, "Found on half of the samples, confirmed on the other half: each fails more often than its classes explain, after correction for all groups tested. Limits hold for all groups together."),
  table({
    caption: "Groups in measured attributes and in what the network sees, the surest first", rows, columns: [
      { title: "group", head: true, get: (row) => row.words },
      { title: "predictions", label: true, get: (row) => row.title },
      { title: "samples", kind: "number", get: (row) => row.n },
      { title: "keeps its class", kind: "number", get: (row) => row.rate.value, cell: (row) => estimate(row.rate) },
      { title: "its classes alone", kind: "number", get: (row) => row.expected, cell: (row) => number(row.expected) },
      { title: "p", kind: "number", get: (row) => row.p, cell: (row) => number(row.p) },
      { title: "samples that fail", kind: "pictures", get: null, cell: (row) => el("span", {}, row.pictures.map((each, place) => thumb(each, `sample ${row.ids[place]}, which fails`))) },
    ],
  }).element) : null;

// The samples that most models of an audit fail, in a place that fills itself once it is shown.
export const hardest = (fleet, audit) => {
  const holder = el("div");
  const show = async () => {
    const { rows } = await get(["fleets", fleet, "audits", audit, "hardest"]);
    if (!rows.length) return;
    const called = (row) => row.key || String(row.id);
    holder.replaceChildren(section("Samples that most models fail",
      el("p", { class: "note" }, "Candidates for a wrong label or an image that nobody can use: a list to look at, never a correction; all numbers count these samples."),
      table({
        caption: "The hardest samples first", rows, page: 8, columns: [
          { title: "sample", head: true, kind: "name", get: called, cell: (row) => el("span", {}, row.picture ? thumb(row.picture, `sample ${called(row)} of class ${row.label_name}`) : null, " ", name(called(row))) },
          { title: "label", label: true, get: (row) => row.label_name, cell: (row) => name(row.label_name) },
          { title: "wrong", kind: "number", about: "models that predict another class without an attack", get: (row) => row.wrong, cell: (row) => `${row.wrong} of ${row.models}` },
          { title: "taken for", label: true, about: "the class that most models predict, and how many do", get: (row) => row.consensus_name, cell: (row) => el("span", {}, row.consensus === row.label ? "its class" : name(row.consensus_name || "no class"), ` by ${row.votes}`) },
          { title: "broken", kind: "number", about: "models in which an attack broke it", get: (row) => row.broken, cell: (row) => `${row.broken} of ${row.models}` },
          { title: "nearest", kind: "number", about: "smallest distance of an adversarial in any model", get: (row) => row.nearest, cell: (row) => row.nearest === null ? "–" : number(row.nearest) },
        ],
      }).element));
  };
  return { holder, show };
};

// A place in the page that fills itself once it is shown.
export const why = (fleet, audit, index) => {
  const holder = el("div", {}, waiting());
  const show = async () => {
    const answer = await get(["fleets", fleet, "audits", audit, "models", index, "why"]);
    holder.replaceChildren(...[confusions(answer), gallery(answer), slices(answer.slices)].filter(Boolean));
  };
  return { holder, show };
};
