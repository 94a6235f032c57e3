// Audits that run now: asked for every two seconds while the page is visible, and passed to its listeners.
import { get } from "./api.js";
import { count, el, live, name, problem } from "./dom.js";

const EVERY = 2000, SLOWEST = 30000;
const listeners = new Set();
let latest = null, timer = 0, pause = EVERY, asking = false;
let before = new Map();

const queued = (audit) => audit.state === "queued" && !audit.stage;
// How many, in a line.
export const pulse = (audits) => {
  const waiting = audits.filter(queued).length, running = audits.length - waiting;
  return [running ? `${count(running, "audit")} running` : "", waiting ? `${waiting} waiting` : ""].filter(Boolean).join(", ");
};

const announce = ({ running }) => {
  const now = new Map(running.map((audit) => [audit.id, audit.stage]));
  const begun = [...now.keys()].filter((id) => !before.has(id)), ended = [...before.keys()].filter((id) => !now.has(id));
  const further = running.filter((audit) => before.has(audit.id) && before.get(audit.id) !== audit.stage && audit.stage);
  const waits = new Set(running.filter(queued).map((audit) => audit.id));
  const said = [...begun.map((id) => `${id} ${waits.has(id) ? "waits" : "runs"}`), ...further.map((audit) => `${audit.id}: ${audit.stage}`), ...ended.map((id) => `${id} has ended`)];
  if (latest && said.length) live(`${said.slice(0, 3).join(", ")}.`);
  before = now;
  return ended.length > 0;
};

const ask = async () => {
  if (asking || document.hidden) return;
  clearTimeout(timer);
  asking = true;
  try {
    const answer = await get(["progress"]);
    const ended = announce(answer);
    latest = answer;
    pause = EVERY;
    for (const listen of listeners) listen(answer, ended);
  } catch (error) {
    pause = Math.min(SLOWEST, Math.max(2 * pause, 1000 * (error.wait || 0)));
    for (const listen of listeners) listen({ running: latest?.running || [], problem: error.problems?.[0] || null }, false);
  }
  asking = false;
  if (!document.hidden) timer = setTimeout(ask, pause);
};

export const watch = () => {
  document.addEventListener("visibilitychange", () => document.hidden ? clearTimeout(timer) : ask());
  ask();
};
export const listen = (hear) => {
  listeners.add(hear);
  if (latest) hear(latest, false);
  return () => listeners.delete(hear);
};

const left = (audit) => {
  if (!audit.done || audit.done >= audit.total || !audit.seconds) return "";
  const seconds = Math.round(audit.seconds / audit.done * (audit.total - audit.done));
  return seconds < 90 ? `about ${seconds} s left in this stage` : `about ${Math.round(seconds / 60)} min left in this stage`;
};
const line = (audit) => {
  const rate = audit.images_per_second ? `${Math.round(audit.images_per_second).toLocaleString("en")} images/s` : "";
  const parts = audit.stage
    ? [audit.stage, `${audit.done} of ${count(audit.total, "shard")}`, count(audit.models, "model"), rate, left(audit)]
    : ["starts"];
  return parts.filter(Boolean).join(", ");
};

// The list is changed in place, so that a reader's place in it stays.
export const runningList = () => {
  const items = new Map();
  const holder = el("ul", { class: "running" });
  const empty = el("p", { class: "note" }, "No audit runs now.");
  const waiting = el("summary"), behind = el("ol", { class: "behind" });
  const queue = el("details", { hidden: true }, waiting, behind);
  const said = el("div");
  const item = (audit) => {
    const bar = el("progress", { "aria-label": `progress of ${audit.id}` }), text = el("span", { class: "note" });
    const made = el("li", {}, name(audit.fleet), " ", el("code", {}, name(audit.id, 120)), audit.key ? [" ", el("span", { class: "note" }, name(audit.key))] : null, bar, text);
    return { made, bar, text };
  };
  const showQueue = (audits) => {
    const ids = audits.map((audit) => audit.id).join(" ");
    queue.hidden = audits.length === 0;
    if (behind.dataset.ids === ids) return;
    behind.dataset.ids = ids;
    waiting.textContent = `${count(audits.length, "audit waits", "audits wait")} for a turn`;
    behind.replaceChildren(...audits.map((audit) => el("li", {}, el("code", {}, name(audit.id, 120)), audit.key ? [" ", el("span", { class: "note" }, name(audit.key))] : null)));
  };
  const show = ({ running: all, problem: fault }) => {
    const running = all.filter((audit) => !queued(audit));
    showQueue(all.filter(queued));
    said.replaceChildren(...(fault ? [problem(fault)] : []));
    for (const [id, each] of items) if (!running.some((audit) => audit.id === id)) { each.made.remove(); items.delete(id); }
    for (const audit of running) {
      if (!items.has(audit.id)) { items.set(audit.id, item(audit)); holder.append(items.get(audit.id).made); }
      const { bar, text } = items.get(audit.id);
      if (audit.total) { bar.max = audit.total; bar.value = audit.done; } else bar.removeAttribute("value");
      text.textContent = line(audit);
    }
    empty.hidden = running.length > 0 || Boolean(fault);
  };
  return { element: el("div", { id: "running" }, said, holder, empty, queue), show };
};
