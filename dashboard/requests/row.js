// A request that waits or runs, as a row of a table.

import { element, setAttribute, setText } from "../dom.js";
import { count, duration } from "../format.js";
import { labelCells } from "../labels.js";
import { call, path } from "../management.js";
import { linkTo } from "../router.js";
import { drawPill, requestState } from "../states.js";

/** The columns, and their classes. */
export const LIVE_HEADS = [
  ["Request", "id"],
  ["State", ""],
  ["Caller", "caller"],
  ["Agent", ""],
  ["Model", "model"],
  ["Tokens", "number"],
  ["Moves", "number"],
  ["Age", "number"],
];
const SHORT_ID = 8; // characters that are shown; the rest is in the tooltip

export function createRow(request) {
  const cells = {
    id: element("td", "id"),
    state: element("span", "pill"),
    caller: element("td", "caller"),
    agent: element("a"),
    model: element("td", "model"),
    tokens: element("td", "number"),
    moves: element("td", "number"),
    age: element("td", "number"),
  };
  const { id, state, caller, agent, model, tokens, moves, age } = cells;
  const row = element("tr", "", id, element("td", "", state), caller, element("td", "", agent));
  row.append(model, tokens, moves, age, element("td", "number", cancelButton(request.id)));
  labelCells(row, LIVE_HEADS);
  row.dataset.testid = "request";
  row.parts = cells;
  return row;
}

export function updateRow(row, request, { names, elapsed }) {
  const cells = row.parts;
  setText(cells.id, request.id.slice(0, SHORT_ID));
  setAttribute(cells.id, "title", request.id);
  drawPill(cells.state, request.state, stateWords(request));
  setText(cells.caller, request.caller);
  setAttribute(cells.caller, "title", request.caller);
  drawAgent(cells.agent, request.agent, names);
  setText(cells.model, request.model ?? "any");
  setText(cells.tokens, count(request.num_tokens));
  setText(cells.moves, count(request.moves));
  setText(cells.age, duration(request.age_seconds + elapsed));
}

/** The name of an agent that leads to its page, or a dash. */
export function drawAgent(link, id, names) {
  setText(link, id ? (names.get(id) ?? id) : "–");
  if (id && names.has(id)) setAttribute(link, "href", linkTo("agents", id));
  else link.removeAttribute("href");
}

function stateWords({ state, position, priority_class: kind, balancer }) {
  const words = [requestState(state)];
  if (position) words.push(`number ${count(position)}`);
  if (kind && kind !== "default") words.push(kind);
  if (balancer) words.push(`at ${balancer}`);
  return words.join(", ");
}

function cancelButton(id) {
  const button = element("button", "quiet", "Cancel");
  button.type = "button";
  button.dataset.testid = "cancel";
  button.setAttribute("aria-label", `Cancel request ${id}`);
  button.addEventListener("click", () => cancel(id, button));
  return button;
}

async function cancel(id, button) {
  button.disabled = true;
  setText(button, "Cancelling…");
  try {
    await call("DELETE", path("requests", id));
  } catch (error) {
    // Not found means that it ended by itself in the meantime: its row goes with the next event.
    if (error.status === 404) return;
    button.disabled = false;
    setText(button, "Try again");
    setAttribute(button, "title", error.message);
  }
}
