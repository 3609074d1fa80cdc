// The page of models: how each is, and what is wished for.

import { byId, element, keyed, setAttribute, setText, show } from "../dom.js";
import { percent, plural } from "../format.js";
import { get, paced } from "../management.js";
import { DesiredStateEditor } from "../models/editor.js";
import { drawIssues } from "./issues.js";
import { drawAgent } from "./request-row.js";
import { drawPill } from "./states.js";
import { downloadWords } from "./work.js";

const SHADES = { loaded: "good", loading: "loading", waiting: "queued", failed: "bad" };
const MAX_AGENTS = 12; // names of agents that are shown of a model

export class ModelsPage {
  #fleet = null;
  #models = [];

  constructor() {
    this.load = paced(() => this.#load());
    this.editor = new DesiredStateEditor(() => this.load());
  }

  open() {
    this.load();
    this.editor.open();
  }

  draw(fleet) {
    this.#fleet = fleet;
    this.load();
    this.#draw();
  }

  drawThroughput() {}

  async #load() {
    try {
      this.#models = (await get("api/v1/models")).models;
      show(byId("models-refused"), false);
    } catch (error) {
      setText(byId("models-refused"), `The list of models cannot be read: ${error.message}`);
      show(byId("models-refused"), true);
    }
    this.#draw();
  }

  #draw() {
    const agents = new Map((this.#fleet?.agents ?? []).map((agent) => [agent.id, agent]));
    show(byId("no-models"), this.#models.length === 0);
    setText(byId("models-note"), this.#models.length ? plural(this.#models.length, "model") : "");
    keyed(byId("models"), this.#models, {
      key: (model) => model.name,
      create: createModel,
      update: (card, model) => updateModel(card, model, agents),
    });
  }
}

function createModel(model) {
  const parts = {
    state: element("span", "pill"),
    source: element("p", "note source"),
    bar: element("progress"),
    progress: element("p", "note"),
    agents: element("p", "note"),
    issues: element("ul", "issues"),
  };
  const head = element("div", "agent-head", element("h3", "", model.name), parts.state);
  const { source, bar, progress, agents, issues } = parts;
  const card = element("li", "card", head, source, bar, progress, agents, issues);
  parts.bar.max = 1;
  parts.bar.setAttribute("aria-label", `Share of ${model.name} that is loaded`);
  card.dataset.testid = "model-card";
  card.parts = parts;
  return card;
}

function updateModel(card, model, agents) {
  const { parts } = card;
  setAttribute(card, "data-status", model.status);
  drawPill(parts.state, SHADES[model.status] ?? "", model.status);
  const aliases = model.aliases?.length ? ` · also ${model.aliases.join(", ")}` : "";
  setText(parts.source, `${model.source ?? "not wished for"}${aliases}`);
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
