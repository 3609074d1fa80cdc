// The page of the fleet: plots, and a card for each agent, searched and sorted.

import { writeCommands } from "../commands.js";
import { byId, keyed, setText, show } from "../dom.js";
import { cachedShare } from "../engine.js";
import { count, percent, plural, rate } from "../format.js";
import { get } from "../management.js";
import { HistoryPanel } from "../history/panel.js";
import { FleetPlots } from "../plots/pair.js";
import { createCard, updateCard } from "../agents/card.js";
import { Hosts } from "../agents/hosts.js";
import { Diary } from "../live/diary.js";
import { linkTo, rewriteAddress } from "../router.js";
import { agentState } from "../states.js";
import { drawWaits } from "./waits.js";

const MAX_CARDS = 500;
const PARTS = { diary: "diary-title", hosts: "hosts-gone" };
const byName = (a, b) => a.name.localeCompare(b.name) || (a.id < b.id ? -1 : 1);

export class FleetPage {
  #rates = {};
  #fleet = null;
  #part = null; // of the page, which is to be seen once it is there

  constructor(history) {
    this.history = history;
    this.plots = new FleetPlots(history);
    this.past = new HistoryPanel(byId("fleet-history"), "of the fleet");
    this.hosts = new Hosts(() => this.#scroll());
    this.diary = new Diary(() => this.hosts.load());
    writeCommands();
    for (const id of ["agent-search", "agent-sort"]) {
      byId(id).addEventListener("input", () => {
        rewriteAddress(linkTo("fleet", "", { agents: byId("agent-search").value }));
        if (this.#fleet) this.draw(this.#fleet);
      });
    }
  }

  /** `agents` in the address are the words that are searched, `show` a part of the page. */
  open(_argument, query) {
    if (query.has("agents")) byId("agent-search").value = query.get("agents");
    this.#part = PARTS[query.get("show")] ?? null;
    if (this.#part) rewriteAddress(linkTo("fleet")); // so that the same link leads there again
    requestAnimationFrame(() => this.#scroll());
    if (this.history.points.length) this.plots.draw();
    this.past.open();
    this.hosts.load();
    drawBalancers();
  }

  #scroll() {
    const part = this.#part && byId(this.#part);
    if (!part?.checkVisibility()) return; // its hosts are not loaded yet
    part.scrollIntoView();
    this.#part = null;
  }

  draw(fleet) {
    this.#fleet = fleet;
    const { agents } = fleet;
    const matching = this.#matching(agents);
    show(byId("no-agents"), agents.length === 0);
    show(byId("no-match"), agents.length > 0 && matching.length === 0);
    setText(byId("agents-note"), note(fleet, matching.length));
    keyed(byId("agents"), matching.slice(0, MAX_CARDS), {
      key: (agent) => agent.id,
      create: createCard,
      update: (card, agent) => updateCard(card, agent, this.history.colourClass(agent.id)),
    });
    this.#drawRates();
    drawWaits(fleet);
  }

  /** The plots have more of the past. */
  drawPast() {
    this.plots.draw();
  }

  drawThroughput(event, fleet) {
    this.#rates = event.agents;
    this.plots.draw();
    this.past.tick();
    drawWaits(fleet);
    if (byId("agent-sort").value === "rate") this.draw(fleet);
    else this.#drawRates();
  }

  /** Each agent's own speed; agents that generated nothing are not in the event. */
  #drawRates() {
    for (const [id, card] of byId("agents").nodesByKey ?? []) {
      setText(card.parts.rate, rate(this.#rates[id] ?? 0));
    }
  }

  #matching(agents) {
    const words = byId("agent-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = agents.filter((agent) => {
      const text = searched(agent);
      return words.every((word) => text.includes(word));
    });
    return found.sort(this.#order());
  }

  #order() {
    const orders = {
      name: () => 0,
      rate: (a, b) => (this.#rates[b.id] ?? 0) - (this.#rates[a.id] ?? 0),
      busy: (a, b) => b.slots.busy - a.slots.busy,
      issues: (a, b) => b.issues.length - a.issues.length,
      newest: (a, b) => a.connected_seconds - b.connected_seconds,
    };
    const order = orders[byId("agent-sort").value];
    return (a, b) => order(a, b) || byName(a, b);
  }
}

/** How many balancers share the fleet, where it is not this one alone. */
async function drawBalancers() {
  const { balancers } = await get("api/v1/balancers").catch(() => ({ balancers: [] }));
  const leader = balancers.find((each) => each.leads);
  const words = leader ? `, ${leader.name} leads` : "";
  setText(byId("balancers-note"), `${plural(balancers.length, "balancer")}${words}`);
  show(byId("balancers-note"), balancers.length > 1);
}

function searched(agent) {
  const labels = Object.entries(agent.labels).map(([name, value]) => `${name}=${value}`);
  const issues = agent.issues.map((issue) => issue.code);
  const served = agent.models.map((model) => model.name);
  const parts = [agent.name, agent.id, ...served, agentState(agent.state)];
  return [...parts, ...labels, ...issues].join(" ").toLowerCase();
}

function note({ agents, moves_total: moves }, numFound) {
  const num = agents.length;
  if (num === 0) return "";
  const models = new Set(agents.flatMap((agent) => agent.models.map((model) => model.name)));
  const words = [plural(num, "agent"), plural(models.size, "model")];
  if (numFound < num) words[0] = `${count(numFound)} of ${words[0]}`;
  if (numFound > MAX_CARDS) words.push(`the first ${MAX_CARDS} shown`);
  const share = cachedShare(agents);
  if (share !== null) words.push(`${percent(share)} of prompts cached`);
  if (moves) words.push(`${plural(moves, "move")} of requests`);
  return words.join(", ");
}
