// Which view the address names, and what all views share: token, navigation, focus, faults.
import { adopt, forget, known } from "./api.js";
import { audit, model } from "./audit.js";
import { clear } from "./charts.js";
import { compare } from "./compare.js";
import { count, el, problem, waiting } from "./dom.js";
import { fleet } from "./fleet.js";
import { home, schedules } from "./home.js";
import { leaderboard } from "./leaderboard.js";
import { listen, pulse, watch } from "./running.js";

const VIEWS = { "": home, leaderboard, schedules, compare };
const main = document.getElementById("main");
let leave = null, turn = 0;

const parsed = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...parts] = path.split("/").map(decodeURIComponent);
  return { view, parts: parts.filter(Boolean), query: Object.fromEntries(new URLSearchParams(query)) };
};
const viewOf = ({ view, parts }) => view === "fleet" ? [null, fleet, audit, model][parts.length] : VIEWS[view];

// The choices of a view stay in its address, so that it can be reloaded, kept and sent.
const remember = (changes) => {
  const { query } = parsed();
  const kept = Object.entries({ ...query, ...changes }).filter(([, value]) => value !== "");
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/"}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`);
};

const show = async ({ again = false } = {}) => {
  const mine = ++turn, route = parsed(), make = viewOf(route);
  const focused = again ? [...main.querySelectorAll("select, input, button")].indexOf(document.activeElement) : -1;
  if (leave) leave();
  leave = null;
  for (const link of document.querySelectorAll("nav a[data-view]")) {
    const current = link.dataset.view === (["leaderboard", "schedules"].includes(route.view) ? route.view : "home");
    if (current) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (!again) main.replaceChildren(waiting());
  main.setAttribute("aria-busy", "true");
  let made;
  try {
    if (!make) throw Object.assign(new Error("no view"), { problems: [{ where: "address", expected: "a page of the dashboard", found: location.hash, remedy: "Go on from the fleets." }] });
    made = await make({ ...route, remember, again: () => show({ again: true }) });
  } catch (error) {
    if (!error.problems) console.error(error);
    made = { title: "Cannot be shown", content: [el("h1", { tabindex: -1 }, "This cannot be shown"), ...(error.problems || [{ where: "page", expected: "no unforeseen error", found: String(error), remedy: "Report this defect of classwise." }]).map(problem), el("p", {}, el("a", { href: "#/" }, "Fleets"))] };
  }
  if (mine !== turn) { if (made.leave) made.leave(); return; }
  main.replaceChildren(...made.content.flat().filter(Boolean));
  clear();
  main.removeAttribute("aria-busy");
  leave = made.leave || null;
  document.title = `${made.title}, classwise`;
  document.getElementById("leave").hidden = !known();
  const target = focused >= 0 ? main.querySelectorAll("select, input, button")[focused] : main.querySelector("h1");
  target?.focus({ preventScroll: focused >= 0 });
  if (!again) scrollTo(0, 0);
  try {
    if (made.after) await made.after();
  } catch (error) {
    if (!error.problems) throw error;
    main.querySelectorAll(".waiting").forEach((each) => each.remove());
    main.append(...error.problems.map(problem));
  }
};

adopt();
addEventListener("hashchange", () => {
  if (location.hash === "#main") { main.focus(); return; }
  adopt();
  show();
});
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); main.scrollIntoView(); });
document.getElementById("leave").addEventListener("click", () => { forget(); location.hash = "#/"; location.reload(); });
listen(({ running, problem: fault }) => {
  document.getElementById("pulse").textContent = fault ? "no answer from the server" : pulse(running);
});
show();
watch();
