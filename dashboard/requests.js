// The table of requests that are waiting or running, each with a way to cancel it.

import { byId, element, keyed, setAttribute, setText, show } from "./dom.js";
import { count, duration, plural } from "./format.js";

const MAX_ROWS = 50;
const SHORT_ID = 8; // characters that are shown; the rest is in the tooltip
const STATES = { queued: "waiting", assigned: "reading", streaming: "answering" };

/** Draw `fleet.requests`; ages are told by the balancer at `fleet.receivedAt`. */
export function drawRequests(fleet, agentNames) {
  const rows = fleet.requests.slice(0, MAX_ROWS);
  show(byId("no-requests"), rows.length === 0);
  show(byId("requests-table"), rows.length > 0);
  setText(byId("requests-note"), note(fleet.num_requests));
  const elapsed = (performance.now() - fleet.receivedAt) / 1000;
  keyed(byId("requests"), rows, {
    key: (request) => request.id,
    create: createRow,
    update: (row, request) => updateRow(row, request, { agentNames, elapsed }),
  });
}

function note(num) {
  if (num > MAX_ROWS) return `the oldest ${MAX_ROWS} of ${count(num)}`;
  return num ? plural(num, "request") : "";
}

function createRow(request) {
  const cells = {
    id: element("td", "id"),
    state: element("span", "pill"),
    agent: element("td"),
    model: element("td", "model"),
    tokens: element("td", "number"),
    age: element("td", "number"),
  };
  const cancel = element("button", "quiet", "Cancel");
  cancel.type = "button";
  cancel.dataset.testid = "cancel";
  cancel.setAttribute("aria-label", `Cancel request ${request.id}`);
  cancel.addEventListener("click", () => cancelRequest(request.id, cancel));
  const { id, state, agent, model, tokens, age } = cells;
  const row = element("tr", "", id, element("td", "", state), agent, model, tokens, age);
  row.append(element("td", "number", cancel));
  row.dataset.testid = "request";
  row.parts = cells;
  return row;
}

function updateRow(row, request, { agentNames, elapsed }) {
  const cells = row.parts;
  setText(cells.id, request.id.slice(0, SHORT_ID));
  setAttribute(cells.id, "title", request.id);
  setText(cells.state, STATES[request.state] ?? request.state);
  setAttribute(cells.state, "class", `pill ${request.state}`);
  setText(cells.agent, request.agent ? (agentNames.get(request.agent) ?? request.agent) : "–");
  setText(cells.model, request.model ?? "any");
  setText(cells.tokens, count(request.num_tokens));
  setText(cells.age, duration(request.age_seconds + elapsed));
}

async function cancelRequest(id, button) {
  button.disabled = true;
  setText(button, "Cancelling…");
  const url = `api/v1/requests/${encodeURIComponent(id)}`;
  try {
    const response = await fetch(url, { method: "DELETE" });
    // Not found means that it ended by itself in the meantime: its row goes with the next event.
    if (response.ok || response.status === 404) return;
  } catch {
    // The balancer cannot be reached; the banner says so.
  }
  button.disabled = false;
  setText(button, "Try again");
}
