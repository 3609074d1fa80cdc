// A model as a card: how it is, where it comes from, which agents have it, what is wrong.

import { downloadWords } from "../agents/work.js";
import { element, keyed, setAttribute, setText, show } from "../dom.js";
import { percent, plural } from "../format.js";
import { drawIssues } from "../issues.js";
import { drawAgent } from "../requests/row.js";
import { linkTo } from "../router.js";
import { drawPill } from "../states.js";

export const SHADES = { loaded: "good", loading: "loading", waiting: "queued", failed: "bad" };
export const MAX_AGENTS = 12; // names of agents that are shown of a model

export function createModel(model) {
  const parts = {
    link: element("a", "", model.name),
    state: element("span", "pill"),
    source: element("p", "note source"),
    bar: element("progress"),
    progress: element("p", "note"),
    agents: element("p", "note"),
    issues: element("ul", "issues"),
  };
  const head = element("div", "agent-head", element("h3", "", parts.link), parts.state);
  const { source, bar, progress, agents, issues } = parts;
  const card = element("li", "card", head, source, bar, progress, agents, issues);
  parts.link.href = linkTo("models", model.name);
  parts.link.title = model.name;
  parts.bar.max = 1;
  parts.bar.setAttribute("aria-label", `Share of ${model.name} that is loaded`);
  card.dataset.testid = "model-card";
  card.parts = parts;
  return card;
}

export function updateModel(card, model, agents) {
  const { parts } = card;
  setAttribute(card, "data-status", model.status);
  drawPill(parts.state, SHADES[model.status] ?? "", model.status);
  const aliases = model.aliases?.length ? ` · also ${model.aliases.join(", ")}` : "";
  setText(parts.source, `${model.source ?? "not in the desired state"}${aliases}`);
  const isLoading = model.progress !== null && model.progress !== undefined;
  show(parts.bar, isLoading);
  if (isLoading) parts.bar.value = model.progress;
  const here = model.agents.map((id) => agents.get(id)).filter(Boolean);
  setText(parts.progress, progressWords(model, here));
  show(parts.progress, parts.progress.textContent !== "");
  drawAgents(parts.agents, model.agents, agents);
  drawIssues(parts.issues, model.issues);
}

function progressWords(model, agents) {
  const words = agents.filter((agent) => agent.download).map((agent) => {
    return `${agent.name} ${downloadWords(agent.download)}`;
  });
  if (model.progress !== null && model.progress !== undefined) {
    words.unshift(percent(model.progress));
  }
  return words.slice(0, MAX_AGENTS).join(" · ");
}

function drawAgents(line, ids, agents) {
  const names = new Map(ids.map((id) => [id, agents.get(id)?.name ?? id]));
  keyed(line, ids.slice(0, MAX_AGENTS), {
    key: (id) => id,
    create: () => element("a", "agent-link"),
    update: (link, id) => drawAgent(link, id, names),
  });
  setAttribute(line, "title", plural(ids.length, "agent"));
}
