// A request that has ended, as a row of a table.

import { element, setAttribute, setText, show } from "../dom.js";
import { count, dateAndTime, fullTime, milliseconds, rate } from "../format.js";
import { labelCells } from "../labels.js";
import { linkTo } from "../router.js";
import { drawPill } from "../states.js";
import { openDetails } from "./details.js";

const HEADS = [
  ["Request"],
  ["Ended at"],
  ["How"],
  ["Caller"],
  ["Agent"],
  ["Model"],
  ["Tokens"],
  ["Moves"],
  ["Waited"],
  ["First token"],
  ["Tokens/s"],
];
const SHORT_ID = 8;
const GOOD = new Set(["stop", "length", "tool_calls"]);
const CALM = new Set(["cancelled", "client_gone"]);

export function createEndedRow(request) {
  const cells = {
    open: element("button", "row-link"),
    time: element("td"),
    caller: element("td", "caller"),
    code: element("span", "pill"),
    place: element("span", "note"),
    error: element("p", "note error"),
    agent: element("a"),
    model: element("td", "model"),
    tokens: element("td", "number"),
    moves: element("td", "number"),
    waited: element("td", "number"),
    first: element("td", "number"),
    speed: element("td", "number"),
  };
  const { open, time, caller, code, place, error, agent, model, tokens, moves, waited, first, speed } = cells;
  const id = element("td", "id", open);
  const row = element("tr", "", id, time, element("td", "how", code, place, error), caller, element("td", "", agent));
  row.append(model, tokens, moves, waited, first, speed);
  labelCells(row, HEADS);
  row.dataset.testid = "ended-request";
  row.dataset.request = request.id;
  open.type = "button";
  open.dataset.testid = "open-request";
  open.setAttribute("aria-label", `All about request ${request.id}`);
  open.addEventListener("click", () => openDetails(request, shade(request.code)));
  row.parts = cells;
  return row;
}

/** The history knows agents by their names; `ids` has the ids of those that are connected. */
export function updateEndedRow(row, request, ids) {
  const cells = row.parts;
  setText(cells.open, request.id.slice(0, SHORT_ID));
  setAttribute(cells.open, "title", request.id);
  setText(cells.time, dateAndTime(request.ended_at));
  setAttribute(cells.time, "title", fullTime(request.ended_at));
  drawPill(cells.code, shade(request.code), request.code);
  setText(cells.error, request.error ?? "");
  show(cells.error, Boolean(request.error));
  setText(cells.place, request.balancer ? ` at ${request.balancer}` : "");
  setText(cells.caller, request.caller || "–");
  setAttribute(cells.caller, "title", request.caller);
  drawAgentName(cells.agent, request.agent, ids);
  setText(cells.model, request.model ?? "–");
  setText(cells.tokens, `${count(request.prompt_tokens)} → ${count(request.completion_tokens)}`);
  setAttribute(cells.tokens, "title", `${count(request.cached_tokens)} of the prompt were cached`);
  setText(cells.moves, count(request.moves));
  setText(cells.waited, milliseconds(request.queue_ms));
  const first = request.first_token_ms;
  setText(cells.first, first === null ? "–" : milliseconds(first));
  setText(cells.speed, rate(request.decode_tokens_per_second));
}

function drawAgentName(link, name, ids) {
  setText(link, name ?? "–");
  if (ids.has(name)) setAttribute(link, "href", linkTo("agents", ids.get(name)));
  else link.removeAttribute("href");
}

function shade(code) {
  if (GOOD.has(code)) return "good";
  return CALM.has(code) ? "calm" : "bad";
}
