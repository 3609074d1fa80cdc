// The numbers on top of the page and a card for each agent.

import { byId, element, keyed, setAttribute, setText, show } from "./dom.js";
import { EnginePanel, cachedShare } from "./engine.js";
import { compact, count, duration, percent, plural, rate } from "./format.js";

const MAX_CARDS = 120;
const MAX_LLAMAS = 48;
const TASKS = { generate: "generates", embed: "embeds", rank: "ranks" };
const STATES = { ready: "ready", draining: "draining", loading: "loading", drained: "drained", idle: "no model", failed: "failed" };

/** Draw the numbers in the header. */
export function drawTotals(fleet) {
  const { agents, slots, queue } = fleet;
  const numReady = agents.filter((agent) => agent.state === "ready").length;
  setText(byId("total-agents"), count(agents.length));
  setText(byId("total-agents-note"), agents.length ? `${count(numReady)} ready` : "none connected");
  setText(byId("total-slots"), `${count(slots.busy)} / ${count(slots.total)}`);
  setText(byId("total-queue"), `${count(queue.depth)} / ${count(queue.limit)}`);
  byId("slots-meter").value = slots.total ? slots.busy / slots.total : 0;
  byId("queue-meter").value = queue.limit ? queue.depth / queue.limit : 0;
  document.title = slots.total ? `${slots.busy}/${slots.total} busy · Arriero` : "Arriero";
}

/** Draw the fleet's speed. */
export function drawRate(throughput, tokensTotal) {
  setText(byId("total-rate"), rate(throughput.tokens_per_second));
  setText(byId("total-rate-note"), `${compact(tokensTotal)} since the start`);
}

/** Draw the agents, in the order of their names; `colourClass(id)` is that of the plot. */
export function drawAgents(agents, colourClass) {
  const sorted = [...agents].sort((a, b) => a.name.localeCompare(b.name) || (a.id < b.id ? -1 : 1));
  const models = new Set(agents.flatMap((agent) => (agent.model ? [agent.model.name] : [])));
  show(byId("no-agents"), agents.length === 0);
  setText(byId("agents-note"), agentsNote(agents, models.size));
  keyed(byId("agents"), sorted.slice(0, MAX_CARDS), {
    key: (agent) => agent.id,
    create: createCard,
    update: (card, agent) => updateCard(card, agent, colourClass(agent.id)),
  });
}

/** Draw each agent's own speed; `rates` has those that generated anything, by id. */
export function drawAgentRates(rates) {
  for (const [id, card] of byId("agents").nodesByKey ?? []) {
    setText(card.parts.rate, rate(rates[id] ?? 0));
  }
}

function agentsNote(agents, numModels) {
  const num = agents.length;
  if (num === 0) return "";
  const isCut = num > MAX_CARDS;
  const words = [isCut ? `the first ${MAX_CARDS} of ${count(num)}` : plural(num, "agent")];
  if (!isCut) words.push(plural(numModels, "model"));
  const share = cachedShare(agents);
  if (share !== null) words.push(`${percent(share)} of prompts cached`);
  return words.join(", ");
}

function createCard(agent) {
  const parts = {
    name: element("h3"),
    state: element("span", "pill"),
    model: element("p", "agent-model"),
    facts: element("p", "note"),
    slots: element("div", "slots"),
    busy: element("span", "agent-busy"),
    rate: element("strong", "", "–"),
    engine: new EnginePanel(),
    about: element("p", "note"),
    issues: element("ul", "issues"),
  };
  const speed = element("span", "agent-rate", parts.rate, " tokens/s");
  const card = element(
    "li",
    "card agent",
    element("div", "agent-head", parts.name, parts.state),
    parts.model,
    parts.facts,
    parts.slots,
    element("p", "agent-line", parts.busy, speed),
    parts.engine.node,
    parts.issues,
    parts.about,
  );
  parts.slots.setAttribute("role", "img");
  card.dataset.testid = "agent";
  card.dataset.agent = agent.id;
  card.parts = parts;
  return card;
}

function updateCard(card, agent, colourClass) {
  const { parts } = card;
  setAttribute(card, "class", `card agent ${colourClass}`);
  setAttribute(card, "data-state", agent.state);
  setText(parts.name, agent.name);
  setAttribute(parts.name, "title", agent.name);
  setText(parts.state, STATES[agent.state] ?? agent.state);
  setAttribute(parts.state, "class", `pill ${agent.state}`);
  setText(parts.model, agent.model?.name ?? "no model");
  setText(parts.facts, modelFacts(agent.model));
  drawSlots(parts, agent.slots);
  parts.engine.draw(agent.statistics);
  setText(parts.about, `up ${duration(agent.connected_seconds)}${labels(agent)} · ${agent.version}`);
  drawIssues(parts.issues, agent.issues);
}

function modelFacts(model) {
  if (!model) return "waiting for one";
  const size = `${compact(model.parameters)} weights`;
  const tasks = model.tasks.map((task) => TASKS[task] ?? task).join(", ");
  return `${model.architecture} · ${size} · context ${count(model.context_size)} · ${tasks}`;
}

function labels(agent) {
  return Object.entries(agent.labels)
    .map(([name, value]) => ` · ${name}=${value}`)
    .join("");
}

// A llama for each slot, loaded and walking when it is busy. A long train is drawn as its share.
function drawSlots(parts, { total, busy }) {
  const drawn = Math.min(total, MAX_LLAMAS);
  const numBusy = Math.ceil((Math.min(busy, total) / Math.max(total, 1)) * drawn);
  const slots = Array.from({ length: drawn }, (_, index) => ({ index, isBusy: index < numBusy }));
  keyed(parts.slots, slots, {
    key: (slot) => slot.index,
    create: () => element("span", "slot"),
    update: (node, slot) => setAttribute(node, "class", slot.isBusy ? "slot busy" : "slot"),
  });
  const words = total ? `${count(busy)} of ${plural(total, "slot")} busy` : "no slots";
  setAttribute(parts.slots, "aria-label", words);
  setText(parts.busy, words);
}

function drawIssues(list, issues) {
  show(list, issues.length > 0);
  keyed(list, issues, {
    key: (issue) => issue.code,
    create: () => element("li"),
    update: (node, issue) => setText(node, `${issue.message} (${issue.code})`),
  });
}
