// The page of requests: waiting, running and ended, searched and filtered, each running one with a
// way to cancel it.

import { byId, element, keyed, setText, show } from "../dom.js";
import { count, plural } from "../format.js";
import { get, paced } from "../management.js";
import { createEndedRow, updateEndedRow } from "./ended-row.js";
import { createRow, updateRow } from "./request-row.js";
import { requestState } from "./states.js";

const MAX_ROWS = 200;
const RUNNING = new Set(["assigned", "streaming"]);

export class RequestsPage {
  #fleet = null;
  #ended = [];

  constructor() {
    this.loadEnded = paced(() => this.#fetchEnded());
    byId("request-state").addEventListener("input", () => this.#load());
    for (const id of ["request-search", "request-state", "request-model"]) {
      byId(id).addEventListener("input", () => this.#redraw());
    }
  }

  open() {
    this.#load();
  }

  /** A request has ended: the list of the ended ones is old. */
  onEnded() {
    if (!byId("page-requests").hidden) this.#load();
  }

  draw(fleet) {
    this.#fleet = fleet;
    offerModels(fleet, this.#ended);
    this.#drawLive();
    this.#drawEnded();
  }

  /** Once a second: the ages. */
  drawThroughput() {
    this.#drawLive();
  }

  #load() {
    if (byId("request-state").value === "ended") this.loadEnded();
  }

  #redraw() {
    if (this.#fleet) this.draw(this.#fleet);
    else this.#drawEnded();
  }

  #drawLive() {
    const fleet = this.#fleet;
    if (!fleet) return;
    const names = agentNames(fleet);
    const isShown = byId("request-state").value !== "ended";
    const all = withPositions(fleet.requests);
    const found = isShown ? all.filter((request) => fits(request, names)) : [];
    show(byId("live-requests"), isShown);
    show(byId("no-requests"), all.length === 0);
    show(byId("no-request-match"), all.length > 0 && found.length === 0);
    show(byId("requests-table"), found.length > 0);
    setText(byId("requests-note"), isShown ? note(fleet, found.length) : "");
    const elapsed = (performance.now() - fleet.receivedAt) / 1000;
    keyed(byId("requests"), found.slice(0, MAX_ROWS), {
      key: (request) => request.id,
      create: createRow,
      update: (row, request) => updateRow(row, request, { names, elapsed }),
    });
  }

  #drawEnded() {
    const isShown = byId("request-state").value === "ended";
    show(byId("ended-requests"), isShown);
    if (!isShown) return;
    const names = this.#fleet ? agentNames(this.#fleet) : new Map();
    const found = this.#ended.filter((request) => fits(request, names));
    show(byId("no-ended"), found.length === 0);
    show(byId("ended-table"), found.length > 0);
    setText(byId("ended-note"), found.length ? `the latest ${count(found.length)}` : "");
    keyed(byId("ended"), found, {
      key: (request) => `${request.id} ${request.ended_at}`,
      create: createEndedRow,
      update: (row, request) => updateEndedRow(row, request, names),
    });
  }

  async #fetchEnded() {
    try {
      this.#ended = (await get(`api/v1/requests?state=ended&limit=${MAX_ROWS}`)).requests;
      setText(byId("no-ended"), "None.");
    } catch (error) {
      setText(byId("no-ended"), `They cannot be read: ${error.message}`);
    }
    this.#redraw();
  }
}

const agentNames = (fleet) => new Map(fleet.agents.map((agent) => [agent.id, agent.name]));

/** The requests, those that wait with their place in the queue: oldest first. */
function withPositions(requests) {
  const queued = requests.filter((request) => request.state === "queued");
  queued.sort((a, b) => b.age_seconds - a.age_seconds);
  const positions = new Map(queued.map((request, index) => [request.id, index + 1]));
  return requests.map((request) => ({ ...request, position: positions.get(request.id) ?? null }));
}

function fits(request, names) {
  const state = byId("request-state").value;
  const model = byId("request-model").value;
  if (state === "queued" && request.state !== "queued") return false;
  if (state === "running" && !RUNNING.has(request.state)) return false;
  if (model && request.model !== model) return false;
  const parts = [request.id, request.model, names.get(request.agent), request.agent];
  parts.push(requestState(request.state ?? ""));
  const text = [...parts, request.code, request.caller, request.kind].join(" ").toLowerCase();
  const words = byId("request-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => text.includes(word));
}

function note(fleet, numFound) {
  const { num_requests: num, requests } = fleet;
  if (num > requests.length) {
    return `${count(numFound)} of the oldest ${count(requests.length)}; ${count(num)} in all`;
  }
  if (numFound < num) return `${count(numFound)} of ${plural(num, "request")}`;
  return num ? plural(num, "request") : "";
}

function offerModels(fleet, ended) {
  const names = [...fleet.requests, ...ended].map((request) => request.model).filter(Boolean);
  const chosen = byId("request-model").value;
  const offered = ["", ...new Set([...names, chosen].filter(Boolean))];
  keyed(byId("request-model"), offered.sort(), {
    key: (name) => name,
    create: (name) => {
      const option = element("option", "", name || "all models");
      option.value = name;
      return option;
    },
    update: () => {},
  });
}
