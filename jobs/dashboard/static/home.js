// The first page: what runs, the fleets with their latest verdicts, what fires next.
import { get } from "./api.js";
import { chip, chips, count, el, name, problem, section, table, waiting, when } from "./dom.js";
import { listen, runningList } from "./running.js";

const PART = 200;

export const until = (moment) => {
  const minutes = Math.round((new Date(moment) - Date.now()) / 60000);
  if (minutes < 0) return "due now";
  if (minutes < 90) return `in ${minutes} min`;
  return minutes < 2880 ? `in ${Math.round(minutes / 60)} h` : `in ${Math.round(minutes / 1440)} days`;
};

const fleets = async () => {
  const answer = await get(["fleets"], { limit: PART });
  if (!answer.total) return [el("p", {}, "No audit was finished in this storage yet: ", el("code", {}, "classwise audit fleet.yaml"), " makes one.")];
  const made = table({
    caption: answer.total > PART ? `The first ${PART} of ${answer.total} fleets, with their latest audits` : "Fleets with their latest audits",
    columns: [
      { title: "fleet", head: true, kind: "name", get: (row) => row.name, cell: (row) => el("a", { href: `#/fleet/${encodeURIComponent(row.id)}` }, name(row.name)) },
      { title: "verdict", get: (row) => row.latest?.outcome, cell: (row) => row.latest?.problem ? el("span", { class: "note" }, "cannot be read") : row.latest ? chip(row.latest.outcome) : "–" },
      { title: "models", get: (row) => row.latest?.models ?? null, cell: (row) => row.latest ? chips(row.latest.counts) : "–" },
      { title: "latest", label: true, get: (row) => row.latest?.started ?? "", cell: (row) => when(row.latest?.started) },
      { title: "samples", kind: "number", get: (row) => row.latest?.samples ?? null, cell: (row) => (row.latest?.samples ?? 0).toLocaleString("en") },
      { title: "classes", kind: "number", get: (row) => row.latest?.classes ?? null },
      { title: "audits", kind: "number", get: (row) => row.audits },
    ],
    rows: answer.fleets,
  });
  return [made.element];
};

const firing = async () => {
  const { schedules, note } = await get(["schedules"]);
  const next = schedules.filter((each) => each.next_at).slice(0, 3);
  if (!next.length) return [el("p", { class: "note" }, note || "No schedule fires again.")];
  return [el("ul", {}, next.map((each) => el("li", {}, name(each.name), ": ", when(each.next_at), ` (${until(each.next_at)})`))),
    el("p", {}, el("a", { href: "#/schedules" }, count(schedules.length, "schedule")))];
};

const failures = async () => {
  const answer = await get(["failures"]);
  if (answer.problem) return [problem(answer.problem)];
  if (!answer.failures.length) return [el("p", { class: "note" }, "Every submitted audit that has ended has a result.")];
  return [table({
    caption: "The latest submitted audits that ended without a result", rows: answer.failures,
    columns: [
      { title: "submission", head: true, kind: "name", get: (row) => row.id, cell: (row) => name(row.id, 130) },
      { title: "state", label: true, get: (row) => row.state },
      { title: "ended", label: true, get: (row) => row.ended || row.started, cell: (row) => when(row.ended || row.started) },
      { title: "why", kind: "why", get: (row) => row.why, cell: (row) => row.why ? name(row.why, 400) : "on request" },
    ],
  }).element];
};

const later = (make) => {
  const holder = el("div", {}, waiting());
  const fill = () => make().then((parts) => holder.replaceChildren(...parts)).catch((error) => {
    if (!error.problems) throw error;
    holder.replaceChildren(...error.problems.map(problem));
  });
  fill();
  return { holder, fill };
};

export const home = async () => {
  const running = runningList(), known = later(fleets), next = later(firing), failed = later(failures);
  const stop = listen((answer, ended) => {
    running.show(answer);
    if (ended) { known.fill(); failed.fill(); }
  });
  return {
    title: "Fleets", leave: stop,
    content: [el("h1", { tabindex: -1 }, "Fleets"), known.holder, section("Running now", running.element), section("Next by the clock", next.holder), section("Without a result", failed.holder)],
  };
};

export const schedules = async () => {
  const answer = await get(["schedules"]);
  const last = (row) => row.firings[0];
  const made = table({
    caption: "Schedules, the next to fire first", empty: answer.note || "No schedule.",
    columns: [
      { title: "schedule", head: true, kind: "name", get: (row) => row.name, cell: (row) => name(row.name) },
      { title: "fleet", label: true, get: (row) => row.fleet, cell: (row) => name(row.fleet) },
      { title: "next firing", label: true, get: (row) => row.next_at, cell: (row) => row.next_at ? el("span", {}, when(row.next_at), ` (${until(row.next_at)})`) : row.paused ? "paused" : "never again" },
      { title: "cron", label: true, get: (row) => row.cron, cell: (row) => el("span", {}, el("code", {}, row.cron), ` ${row.zone}`) },
      { title: "meanwhile", label: true, about: "what a firing does while an audit of the fleet runs", get: (row) => row.overlap },
      { title: "last firing", label: true, get: (row) => last(row)?.due_at ?? null, cell: (row) => last(row) ? el("span", {}, when(last(row).due_at), " ", last(row).outcome ? chip(last(row).outcome) : last(row).state) : "none yet" },
    ],
    rows: answer.schedules,
  });
  const histories = answer.schedules.filter((row) => row.firings.length).map((row) => el("details", {}, el("summary", {}, "Firings of ", name(row.name)), table({
    caption: `The latest firings of ${row.name}`,
    columns: [
      { title: "due", head: true, get: (each) => each.due_at, cell: (each) => when(each.due_at) },
      { title: "state", get: (each) => each.state },
      { title: "outcome", get: (each) => each.outcome, cell: (each) => each.outcome ? chip(each.outcome) : "–" },
      { title: "submission", label: true, kind: "name", get: (each) => each.submission, cell: (each) => each.submission ? name(each.submission, 130) : "–" },
      { title: "message", kind: "name", get: (each) => each.message, cell: (each) => each.message ? name(each.message, 300) : "" },
    ],
    rows: row.firings,
  }).element));
  return { title: "Schedules", content: [el("h1", { tabindex: -1 }, "Schedules"), made.element, ...histories] };
};
