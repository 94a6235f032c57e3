// Asks the server, with the token of this tab; asks for a token when there is none, or it is not known. A proxy may have
// signed the user in: so the server is asked without a token first.
const KEY = "classwise.token";

export class Refused extends Error {
  constructor(status, problems, wait = 0) {
    super(problems[0]?.found || `status ${status}`);
    Object.assign(this, { status, problems, wait });
  }
}

// A token in the address, as `classwise dashboard` prints it, is taken out of it immediately.
export const adopt = () => {
  const given = /^#token=([\w.~+/=-]+)$/.exec(location.hash);
  if (!given) return;
  sessionStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", `${location.pathname}#/`);
};
export const forget = () => sessionStorage.removeItem(KEY);
export const known = () => Boolean(sessionStorage.getItem(KEY));

let asking = null;
export const askToken = (said = "") => {
  asking = asking || new Promise((resolve) => {
    const gate = document.getElementById("gate"), field = document.getElementById("token");
    document.getElementById("gate-said").textContent = said;
    const stay = (event) => event.preventDefault(); // there is nothing to see behind it
    gate.addEventListener("cancel", stay);
    document.getElementById("gate-form").addEventListener("submit", () => {
      sessionStorage.setItem(KEY, field.value.trim());
      field.value = "";
      gate.removeEventListener("cancel", stay);
      asking = null;
      resolve();
    }, { once: true });
    gate.showModal();
    field.focus();
  });
  return asking;
};

const path = (parts, query) => {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `/v1/${parts.map(encodeURIComponent).join("/")}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
};

export const get = async (parts, query = {}) => {
  for (;;) {
    let answer;
    const sent = sessionStorage.getItem(KEY);
    try {
      answer = await fetch(path(parts, query), { headers: sent ? { authorization: `Bearer ${sent}` } : {}, cache: "no-store" });
    } catch {
      throw new Refused(0, [{ where: "server", expected: "an answer", found: "none", remedy: "Is it still running? The page goes on as soon as it answers." }]);
    }
    if (answer.ok) return answer.json();
    const body = await answer.json().catch(() => ({ problems: [] }));
    if (answer.status === 401) {
      if (sessionStorage.getItem(KEY) === sent) {
        forget();
        await askToken(sent ? "The server does not know this token." : "");
      }
      continue;
    }
    throw new Refused(answer.status, body.problems || [], Number(answer.headers.get("retry-after")) || 0);
  }
};
