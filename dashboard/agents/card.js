// One agent's card on the page of the fleet.

import { element, keyed, setAttribute, setText, show } from "../dom.js";
import { EnginePanel } from "../engine.js";
import { bytes, compact, count, duration, plural } from "../format.js";
import { linkTo } from "../router.js";
import { drawIssues } from "../issues.js";
import { agentState, drawPill } from "../states.js";
import { WorkPanel } from "./work.js";

const MAX_LLAMAS = 48;
const TASKS = { generate: "generates", embed: "embeds", rank: "ranks" };

export function createCard(agent) {
  const parts = {
    link: element("a"),
    state: element("span", "pill"),
    model: element("p", "agent-model"),
    facts: element("p", "note"),
    slots: element("div", "slots"),
    busy: element("span", "agent-busy"),
    rate: element("strong", "", "–"),
    work: new WorkPanel(),
    engine: new EnginePanel(),
    about: element("p", "note"),
    issues: element("ul", "issues"),
  };
  const card = element(
    "li",
    "card agent",
    element("div", "agent-head", element("h3", "", parts.link), parts.state),
    parts.model,
    parts.facts,
    parts.slots,
    element("p", "agent-line", parts.busy, element("span", "agent-rate", parts.rate, " tokens/s")),
    parts.work.node,
    parts.engine.node,
    parts.issues,
    parts.about,
  );
  parts.link.href = linkTo("agents", agent.id);
  parts.slots.setAttribute("role", "img");
  card.dataset.testid = "agent";
  card.dataset.agent = agent.id;
  card.parts = parts;
  return card;
}

/** Bring a card up to date; what did not change since the last time costs nothing. */
export function updateCard(card, agent, colourClass) {
  const { parts } = card;
  const name = `card agent ${colourClass}`;
  if (card.className !== name) card.className = name;
  const minute = Math.floor(agent.connected_seconds / (agent.connected_seconds < 60 ? 1 : 60));
  if (card.changeNumber === agent.changeNumber && card.minute === minute) return;
  card.changeNumber = agent.changeNumber;
  card.minute = minute;
  setAttribute(card, "data-state", agent.state);
  setText(parts.link, agent.name);
  setAttribute(parts.link, "title", agent.name);
  drawPill(parts.state, agent.state, agentState(agent.state));
  setText(parts.model, modelNames(agent));
  setText(parts.facts, modelFacts(agent.model));
  drawSlots(parts.slots, agent.slots);
  setText(parts.busy, slotWords(agent.slots));
  parts.work.draw(agent);
  parts.engine.draw(agent);
  setText(parts.about, `up ${duration(agent.connected_seconds)}${labels(agent)} · ${agent.version}`);
  drawIssues(parts.issues, agent.issues);
}

/** All that an agent serves; where that is several models, with the memory that each takes. */
export function modelNames({ models }) {
  if (models.length < 2) return models[0]?.name ?? "no model";
  const sized = ({ name, memory_needed: size }) => (size ? `${name} (${bytes(size)})` : name);
  return models.map(sized).join(", ");
}

/** What a model is, in a line. */
export function modelFacts(model) {
  if (!model) return "waiting for one";
  const context = model.context_size ? count(model.context_size) : "unknown";
  const tasks = model.tasks.map((task) => TASKS[task] ?? task).join(", ");
  const { upstream } = model;
  const what = upstream
    ? `${upstream.kind} at ${upstream.address}`
    : `${model.architecture} · ${compact(model.parameters)} weights`;
  const more = [adapterWords(model), draftWords(model)].filter(Boolean);
  return [what, `context ${context}`, tasks, ...more].join(" · ");
}

const adapterWords = ({ adapters = [] }) => (adapters.length ? plural(adapters.length, "adapter") : "");
const draftWords = ({ draft_model: name }) => (name ? `drafts by ${name}` : "");

const slotWords = ({ total, busy }) =>
  total ? `${count(busy)} of ${plural(total, "slot")} busy` : "no slots";

function labels(agent) {
  return Object.entries(agent.labels)
    .map(([name, value]) => ` · ${name}=${value}`)
    .join("");
}

/** A llama for each slot, loaded and walking when it is busy. A long train is drawn as its share. */
export function drawSlots(node, { total, busy }) {
  const drawn = Math.min(total, MAX_LLAMAS);
  const numBusy = Math.ceil((Math.min(busy, total) / Math.max(total, 1)) * drawn);
  const slots = Array.from({ length: drawn }, (_, index) => ({ index, isBusy: index < numBusy }));
  keyed(node, slots, {
    key: (slot) => slot.index,
    create: () => element("span", "slot"),
    update: (each, slot) => setAttribute(each, "class", slot.isBusy ? "slot busy" : "slot"),
  });
  setAttribute(node, "aria-label", slotWords({ total, busy }));
  show(node, total > 0);
}
