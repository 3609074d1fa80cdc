// The page of requests: waiting, running and ended, searched and filtered, each running one with a
// way to cancel it.

import { byId, keyed, setText, show } from "../dom.js";
import { count, plural } from "../format.js";
import { get, paced } from "../management.js";
import { createEndedRow, updateEndedRow } from "../requests/ended-row.js";
import { Filters } from "../requests/filters.js";
import { createRow, updateRow } from "../requests/row.js";
import { requestState } from "../states.js";

const MAX_ROWS = 200;
const RUNNING = new Set(["assigned", "streaming"]);
const SENT = ["model", "agent", "caller", "code"]; // what the balancer chooses ended ones by

export class RequestsPage {
  #fleet = null;
  #ended = [];
  #total = 0; // of ended requests that the balancer keeps
  #problem = "";

  constructor() {
    this.loadEnded = paced(() => this.#fetchEnded());
    this.filters = new Filters(() => this.#changed());
  }

  open(_argument, query) {
    this.filters.read(query);
    this.#changed();
  }

  /** A request has ended: the list of the ended ones is old. */
  onEnded() {
    if (!byId("page-requests").hidden && this.#showsEnded()) this.loadEnded();
  }

  draw(fleet) {
    this.#fleet = fleet;
    this.filters.offer("model", fleet.requests.map(({ model }) => model));
    this.filters.offer("caller", fleet.requests.map(({ caller }) => caller));
    this.filters.offer("agent", fleet.agents.map(({ name }) => name));
    this.#drawLive();
    this.#drawEnded();
  }

  /** Once a second: the ages. */
  drawThroughput() {
    this.#drawLive();
  }

  #showsEnded() {
    return this.filters.values().state === "ended";
  }

  #changed() {
    if (this.#showsEnded()) this.loadEnded();
    if (this.#fleet) this.draw(this.#fleet);
    else this.#drawEnded();
  }

  #drawLive() {
    const fleet = this.#fleet;
    if (!fleet) return;
    const names = new Map(fleet.agents.map((agent) => [agent.id, agent.name]));
    const chosen = this.filters.values();
    const isShown = chosen.state !== "ended";
    const all = fleet.requests;
    const found = isShown ? all.filter((request) => fitsLive(request, names, chosen)) : [];
    show(byId("live-requests"), isShown);
    show(byId("no-requests"), all.length === 0);
    show(byId("no-request-match"), all.length > 0 && found.length === 0);
    show(byId("requests-table"), found.length > 0);
    if (isShown) setText(byId("requests-note"), note(fleet, found.length));
    const elapsed = (performance.now() - fleet.receivedAt) / 1000;
    keyed(byId("requests"), found.slice(0, MAX_ROWS), {
      key: (request) => request.id,
      create: createRow,
      update: (row, request) => updateRow(row, request, { names, elapsed }),
    });
  }

  #drawEnded() {
    const chosen = this.filters.values();
    show(byId("ended-requests"), chosen.state === "ended");
    if (chosen.state !== "ended") return;
    const ids = new Map((this.#fleet?.agents ?? []).map((agent) => [agent.name, agent.id]));
    const found = this.#ended.filter((request) => fitsEnded(request, chosen));
    show(byId("no-ended"), found.length === 0);
    show(byId("ended-table"), found.length > 0);
    setText(byId("no-ended"), this.#problem || "None.");
    setText(byId("ended-note"), found.length ? `the latest ${count(found.length)}` : "");
    setText(byId("requests-note"), this.#total ? `${plural(this.#total, "request")} stored` : "");
    keyed(byId("ended"), found, {
      key: (request) => `${request.id} ${request.ended_at}`,
      create: createEndedRow,
      update: (row, request) => updateEndedRow(row, request, ids),
    });
  }

  async #fetchEnded() {
    const chosen = this.filters.values();
    const query = new URLSearchParams({ state: "ended", limit: MAX_ROWS });
    for (const name of SENT) if (chosen[name]) query.set(name, chosen[name]);
    try {
      const { requests, total } = await get(`api/v1/requests?${query}`);
      this.#problem = "";
      this.#ended = requests;
      this.#total = total;
    } catch (error) {
      this.#problem = `They cannot be read: ${error.message}`;
      this.#ended = [];
    }
    for (const name of SENT) {
      this.filters.offer(name, this.#ended.map((request) => request[name]));
    }
    this.#drawEnded();
  }
}

function fitsLive(request, names, { q, state, model, agent, caller }) {
  if (state === "queued" && request.state !== "queued") return false;
  if (state === "running" && !RUNNING.has(request.state)) return false;
  if (model && request.model !== model) return false;
  if (caller && request.caller !== caller) return false;
  if (agent && names.get(request.agent) !== agent) return false;
  const shown = { ...request, agent: `${names.get(request.agent) ?? ""} ${request.agent ?? ""}` };
  return hasWords(shown, q);
}

/** Those that were read may be of filters before these. */
function fitsEnded(request, chosen) {
  const isChosen = SENT.every((name) => !chosen[name] || request[name] === chosen[name]);
  return isChosen && hasWords(request, chosen.q);
}

/** Whether all words of `text` stand in what the table shows of a request. */
function hasWords(request, text) {
  const { id, model, agent, code, caller, kind, state } = request;
  const parts = [id, model, agent, code, caller, kind, requestState(state ?? "")];
  const found = parts.join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => found.includes(word));
}

function note(fleet, numFound) {
  const { num_requests: num, requests } = fleet;
  if (num > requests.length) {
    return `${count(numFound)} of the oldest ${count(requests.length)}; ${count(num)} in all`;
  }
  if (numFound < num) return `${count(numFound)} of ${plural(num, "request")}`;
  return num ? plural(num, "request") : "";
}
