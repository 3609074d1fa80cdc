// The page of one agent: what it is, what it does, its plot, its cache, its requests; drain, resume
// and reload.

import { byId, element, keyed, setAttribute, setText, show } from "../dom.js";
import { EnginePanel } from "../engine.js";
import { duration, plural, rate } from "../format.js";
import { WINDOW } from "../plots/history.js";
import { Plot } from "../plots/plot.js";
import { AgentActions } from "./agent-actions.js";
import { drawSlots, modelFacts } from "./agent-card.js";
import { engineFacts, hostFacts } from "./agent-facts.js";
import { drawIssues } from "./issues.js";
import { createRow, updateRow } from "./request-row.js";
import { agentState, drawPill } from "./states.js";
import { WorkPanel } from "./work.js";

export class AgentPage {
  #id = "";

  constructor(history) {
    this.history = history;
    this.actions = new AgentActions();
    this.work = new WorkPanel();
    this.engine = new EnginePanel();
    byId("agent-work").append(this.work.node);
    byId("agent-engine").append(this.engine.node);
    this.plot = new Plot(byId("agent-plot"), {
      seconds: WINDOW,
      minimum: 10,
      hint: "No tokens in the last minutes.",
      onCursor: (point) => this.#mark(point),
    });
  }

  open(id) {
    this.#id = id;
    this.actions.open(id);
    this.#drawPlot();
  }

  draw(fleet) {
    const agent = fleet.agents.find((each) => each.id === this.#id);
    show(byId("agent-gone"), agent === undefined);
    show(byId("agent-here"), agent !== undefined);
    if (!agent) return setText(byId("agent-title"), `Agent ${this.#id}`);
    setText(byId("agent-title"), agent.name);
    drawPill(byId("agent-state"), agent.state, agentState(agent.state));
    setText(byId("agent-model"), agent.model?.name ?? "no model");
    setText(byId("agent-model-facts"), modelFacts(agent.model));
    const colour = this.history.colourClass(agent.id);
    setAttribute(byId("agent-slots"), "class", `slots ${colour}`);
    setAttribute(byId("agent-engine"), "class", colour);
    drawSlots(byId("agent-slots"), agent.slots);
    drawIssues(byId("agent-issues"), agent.issues);
    this.work.draw(agent);
    this.engine.draw(agent.statistics);
    this.actions.draw(agent);
    drawFacts(byId("agent-facts"), hostFacts(agent));
    drawFacts(byId("agent-statistics"), engineFacts(agent.statistics));
    this.#drawRequests(fleet);
    return undefined;
  }

  drawThroughput(event, fleet) {
    this.#drawPlot();
    setText(byId("agent-rate"), `${rate(event.agents[this.#id] ?? 0)} tokens/s`);
    this.#drawRequests(fleet);
  }

  #drawPlot() {
    const layer = {
      key: this.#id,
      name: "tokens per second",
      className: this.history.colourClass(this.#id),
      value: (point) => point.rates[this.#id] ?? 0,
    };
    this.plot.draw(this.history.points, [layer]);
  }

  #mark(point) {
    this.plot.mark(point);
    const shown = point ?? this.history.points.at(-1);
    const age = point ? this.history.points.at(-1).at - point.at : 0;
    const when = age >= 1 ? `, ${duration(age)} ago` : "";
    setText(byId("agent-rate"), `${rate(shown?.rates[this.#id] ?? 0)} tokens/s${when}`);
  }

  #drawRequests(fleet) {
    const running = fleet.requests.filter((request) => request.agent === this.#id);
    const names = new Map(fleet.agents.map((agent) => [agent.id, agent.name]));
    const elapsed = (performance.now() - fleet.receivedAt) / 1000;
    setText(byId("agent-requests-note"), running.length ? plural(running.length, "request") : "none");
    show(byId("agent-requests-table"), running.length > 0);
    keyed(byId("agent-requests"), running, {
      key: (request) => request.id,
      create: createRow,
      update: (row, request) => updateRow(row, request, { names, elapsed }),
    });
  }
}

function drawFacts(list, facts) {
  keyed(list, facts, {
    key: ([name]) => name,
    create: ([name]) => element("div", "fact", element("dt", "", name), element("dd")),
    update: (node, [, value]) => setText(node.lastElementChild, value),
  });
}
