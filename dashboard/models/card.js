// A model as a card: how it is, where it comes from, which agents have it, what is wrong.

import { downloadWords } from "../agents/work.js";
import { element, keyed, setAttribute, setText, show } from "../dom.js";
import { count, percent, plural, rate } from "../format.js";
import { term } from "../hints.js";
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
    placement: element("p", "note"),
    figures: element("dl", "facts few"),
    issues: element("ul", "issues"),
  };
  const head = element("div", "agent-head", element("h3", "", parts.link), parts.state);
  const { source, bar, progress, agents, placement, figures, issues } = parts;
  const card = element("li", "card", head, source, bar, progress, agents, placement);
  card.append(figures, issues);
  parts.link.href = linkTo("models", model.name);
  parts.link.title = model.name;
  parts.bar.max = 1;
  parts.bar.setAttribute("aria-label", `Share of ${model.name} that is loaded`);
  card.dataset.testid = "model-card";
  card.parts = parts;
  return card;
}

/** Whether `name` is that of an adapter of one of `models`: its agents' work is its model's. */
export const isAdapter = (name, models) =>
  models.some((model) => name.slice(0, Math.max(0, name.lastIndexOf(":"))) === model.name);

/** What a model has to do, as words by name; `rates` are agents' tokens per second. */
export function workOf(model, rates, isOfAdapter) {
  const { busy, total } = model.slots;
  const isKnown = total > 0 && !isOfAdapter;
  const sum = model.agents.reduce((all, id) => all + (rates[id] ?? 0), 0);
  return {
    Slots: isKnown ? `${count(busy)} of ${count(total)}` : "–",
    Queue: count(model.waiting),
    "Tokens/s": isKnown ? rate(sum) : "–",
  };
}

/** `agents` by id; `work` is of `workOf`. */
export function updateModel(card, model, { agents, work }) {
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
  setText(parts.placement, model.placement ?? "");
  show(parts.placement, Boolean(model.placement));
  keyed(parts.figures, Object.entries(work), {
    key: ([name]) => name,
    create: ([name]) => element("div", "fact", element("dt", "", term(name)), element("dd")),
    update: (node, [, words]) => setText(node.lastElementChild, words),
  });
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
