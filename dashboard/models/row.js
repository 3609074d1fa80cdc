// A model as a row of the table: how it is, who has it, what it has to do, what is wrong with it.

import { element, keyed, setAttribute, setText, show } from "../dom.js";
import { percent, plural } from "../format.js";
import { drawIssues } from "../issues.js";
import { labelCells } from "../labels.js";
import { drawAgent } from "../requests/row.js";
import { linkTo } from "../router.js";
import { drawPill } from "../states.js";
import { MAX_AGENTS, SHADES } from "./card.js";

const HEADS = [["Model"], ["State"], ["Agents"], ["Slots"], ["Queue"], ["Tokens/s"]];

/** `onEdit(name, button)` is called when the reader wants to change the model. */
export function createModelRow(model, onEdit) {
  const edit = element("button", "quiet for-admins", "Edit");
  const parts = {
    link: element("a", "", model.name),
    source: element("span", "note source"),
    state: element("span", "pill"),
    bar: element("progress"),
    agents: element("td", "why"),
    slots: element("td", "number"),
    queue: element("td", "number"),
    rate: element("td", "number"),
    issues: element("ul", "issues"),
    edit,
  };
  const { link, source, state, bar, agents, slots, queue } = parts;
  const name = element("td", "why", link, source, parts.issues);
  const row = element("tr", "", name, element("td", "", state, bar), agents, slots, queue, parts.rate);
  row.append(element("td", "number", edit));
  labelCells(row, HEADS);
  link.href = linkTo("models", model.name);
  bar.max = 1;
  bar.setAttribute("aria-label", `Share of ${model.name} that is loaded`);
  edit.type = "button";
  edit.dataset.testid = "edit-model";
  edit.setAttribute("aria-label", `Edit ${model.name}`);
  edit.addEventListener("click", () => onEdit(model.name, edit));
  row.dataset.testid = "model-row";
  row.parts = parts;
  return row;
}

/** `agents` by id; `work` is of `workOf`. */
export function updateModelRow(row, model, { agents, work, isDesired }) {
  const { parts } = row;
  setAttribute(row, "data-status", model.status);
  const isLoading = model.progress !== null && model.progress !== undefined;
  const words = isLoading ? `${model.status}, ${percent(model.progress)}` : model.status;
  drawPill(parts.state, SHADES[model.status] ?? "", words);
  show(parts.bar, isLoading);
  if (isLoading) parts.bar.value = model.progress;
  const aliases = model.aliases?.length ? ` · also ${model.aliases.join(", ")}` : "";
  setText(parts.source, `${model.source ?? "an agent's own"}${aliases}`);
  drawAgents(parts.agents, model.agents, agents);
  setText(parts.slots, work.Slots);
  setText(parts.queue, work.Queue);
  setAttribute(parts.queue, "class", model.waiting ? "number waits" : "number");
  setText(parts.rate, work["Tokens/s"]);
  drawIssues(parts.issues, model.issues);
  show(parts.edit, isDesired);
}

function drawAgents(cell, ids, agents) {
  const names = new Map(ids.map((id) => [id, agents.get(id)?.name ?? id]));
  keyed(cell, ids.slice(0, MAX_AGENTS), {
    key: (id) => id,
    create: () => element("a", "agent-link"),
    update: (link, id) => drawAgent(link, id, names),
  });
  setAttribute(cell, "title", plural(ids.length, "agent"));
}
