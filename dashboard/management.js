// Calls to the management API.

/** What the balancer refused; `code` is its own, `status` that of HTTP, `problems` one by one. */
export class Refused extends Error {
  constructor({ code, message, field = null, problems = [] }, status) {
    super(message);
    this.problems = problems;
    this.code = code;
    this.field = field;
    this.status = status;
  }
}

/** The code of a call that somebody else answered by sending it elsewhere. */
export const REDIRECTED = "redirected";

let shown = {}; // what the session's calls have to show beside its cookie

/** From now on send these headers with each call. */
export function showWithCalls(headers) {
  shown = headers;
}

/** The headers that every call of this page has. */
export const sessionHeaders = () => shown;

/** One call. Resolves to `{body, etag}`; throws `Refused`, also if there is no answer (status 0). */
export async function call(method, path, { body, headers = {} } = {}) {
  // The balancer redirects nobody: a proxy in front may, to its own login.
  const options = { method, redirect: "manual", headers: { Accept: "application/json", ...shown, ...headers } };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  const response = await fetch(path, options).catch(() => {
    throw new Refused({ code: "disconnected", message: "The balancer cannot be reached." }, 0);
  });
  if (response.type === "opaqueredirect") throw new Refused({ code: REDIRECTED, message: "Load the page again to log in." }, 0);
  const answer = await response.json().catch(() => null);
  if (response.ok) return { body: answer, etag: response.headers.get("ETag") };
  const unreadable = { code: `HTTP ${response.status}`, message: `HTTP ${response.status}` };
  throw new Refused(answer?.error ?? unreadable, response.status);
}

/** The answer to a GET. */
export const get = async (path) => (await call("GET", path)).body;

/** A path with `parts`, each made safe. */
export const path = (...parts) => ["api/v1", ...parts.map(encodeURIComponent)].join("/");

/**
 * Calls `load` when asked, at most once in `pause` milliseconds and never twice at a time; the last
 * ask is not lost.
 */
export function paced(load, pause = 1000) {
  let isRunning = false;
  let isWanted = false;
  async function run() {
    isWanted = true;
    if (isRunning) return;
    isRunning = true;
    while (isWanted) {
      isWanted = false;
      await load();
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    isRunning = false;
  }
  return run;
}
