// The page of one agent: what it is, what it does, its plot, its cache, its requests; drain, resume
// and reload.

import { byId, element, keyed, setAttribute, setText, show } from "../dom.js";
import { EnginePanel } from "../engine.js";
import { duration, rate } from "../format.js";
import { term } from "../hints.js";
import { HistoryPanel } from "../history/panel.js";
import { get, path } from "../management.js";
import { WINDOW } from "../plots/history.js";
import { Plot } from "../plots/plot.js";
import { AgentActions } from "../agents/actions.js";
import { drawSlots, modelFacts, modelNames } from "../agents/card.js";
import { drawDevices } from "../agents/devices.js";
import { engineFacts, hostFacts } from "../agents/facts.js";
import { AgentLog } from "../agents/log.js";
import { drawMemory } from "../agents/memory.js";
import { drawIssues } from "../issues.js";
import { LiveTable } from "../requests/live-table.js";
import { linkTo } from "../router.js";
import { agentState, drawPill } from "../states.js";
import { WorkPanel } from "../agents/work.js";

export class AgentPage {
  #id = "";
  #latest = null; // the agent as it was drawn last
  #name = null; // of the agent whose past is shown; known once the fleet is
  #areDevicesFilled = false; // their plots have what was before this page was opened

  constructor(history, devices) {
    this.history = history;
    this.devices = devices;
    this.actions = new AgentActions();
    this.work = new WorkPanel();
    this.engine = new EnginePanel();
    this.past = new HistoryPanel(byId("agent-history"), "of this agent");
    this.log = new AgentLog(byId("agent-log"));
    this.requests = new LiveTable(byId("agent-requests"), "Requests on it");
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
    this.#name = null;
    this.#areDevicesFilled = false;
    this.actions.open(id);
    this.#drawPlot();
  }

  /** Another page is shown. */
  close() {
    this.log.close();
  }

  draw(fleet) {
    const agent = fleet.agents.find((each) => each.id === this.#id);
    show(byId("agent-gone"), agent === undefined);
    show(byId("agent-here"), agent !== undefined);
    show(byId("agent-state"), agent !== undefined);
    if (!agent) this.log.close();
    if (!agent) return setText(byId("agent-title"), `Agent ${this.#id}`);
    this.#latest = agent;
    this.log.open(this.#id);
    setText(byId("agent-title"), agent.name);
    this.#openPast(agent.name);
    drawPill(byId("agent-state"), agent.state, agentState(agent.state));
    setText(byId("agent-model"), modelNames(agent));
    setText(byId("agent-model-facts"), modelFacts(agent.model));
    const colour = this.history.colourClass(agent.id);
    setAttribute(byId("agent-slots"), "class", `slots ${colour}`);
    setAttribute(byId("agent-engine"), "class", colour);
    drawSlots(byId("agent-slots"), agent.slots);
    drawIssues(byId("agent-issues"), agent.issues);
    this.work.draw(agent);
    this.engine.draw(agent);
    this.actions.draw(agent);
    drawMemory(byId("agent-memory"), agent);
    drawDevices(byId("agent-devices"), agent, this.devices);
    if (!this.#areDevicesFilled) this.#fillDevices(agent, fleet);
    drawFacts(byId("agent-facts"), hostFacts(agent));
    drawFacts(byId("agent-statistics"), engineFacts(agent));
    this.#drawRequests(fleet);
    return undefined;
  }

  drawThroughput(event, fleet) {
    this.#drawPlot();
    if (this.#name !== null) this.past.tick();
    setText(byId("agent-rate"), `${rate(event.agents[this.#id] ?? 0)} tokens/s`);
    this.#drawRequests(fleet);
  }

  async #fillDevices(agent, { at, receivedAt }) {
    this.#areDevicesFilled = true;
    const past = await get(path("agents", agent.id, "devices")).catch(() => null);
    if (past === null) return; // they begin now
    this.devices.fill(agent.id, past, receivedAt / 1000 - at);
    if (agent.id === this.#id) drawDevices(byId("agent-devices"), this.#latest, this.devices);
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

  /** The history knows agents by their names. */
  #openPast(name) {
    if (name === this.#name) return;
    this.#name = name;
    setAttribute(byId("agent-ended"), "href", linkTo("requests", "", { state: "ended", agent: name }));
    this.past.open({ by: "agent", name });
  }

  #drawRequests(fleet) {
    this.requests.draw(fleet, (request) => request.agent === this.#id);
  }
}

function drawFacts(list, facts) {
  keyed(list, facts, {
    key: ([name]) => name,
    create: ([name]) => element("div", "fact", element("dt", "", term(name)), element("dd")),
    update: (node, [, value]) => setText(node.lastElementChild, value),
  });
}
