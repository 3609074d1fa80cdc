// The page of one model: how it is, what it did, and its requests.

import { byId, keyed, setAttribute, setText, show } from "../dom.js";
import { HistoryPanel } from "../history/panel.js";
import { get, paced } from "../management.js";
import { createModel, isAdapter, updateModel, workOf } from "../models/card.js";
import { LiveTable } from "../requests/live-table.js";
import { linkTo } from "../router.js";

export class ModelPage {
  #name = "";
  #fleet = null;
  #models = [];
  #rates = {};

  constructor() {
    this.load = paced(() => this.#load());
    this.past = new HistoryPanel(byId("model-history"), "of this model");
    this.requests = new LiveTable(byId("model-requests"), "Requests for it");
  }

  open(name) {
    this.#name = name;
    setText(byId("model-title"), name);
    setAttribute(byId("model-edit"), "href", linkTo("models", "", { edit: name }));
    setAttribute(byId("model-ended"), "href", linkTo("requests", "", { state: "ended", model: name }));
    setText(byId("model-said"), "");
    this.past.open({ by: "model", name });
    this.load();
    this.#draw();
  }

  draw(fleet) {
    this.#fleet = fleet;
    this.load();
    this.#draw();
  }

  drawThroughput(event) {
    this.#rates = event.agents;
    this.past.tick();
    this.#draw();
  }

  async #load() {
    try {
      this.#models = (await get("api/v1/models")).models;
      setText(byId("model-said"), this.#model() ? "" : "No agent serves this model now, and the desired state does not have it.");
    } catch (error) {
      setText(byId("model-said"), `How it is cannot be read: ${error.message}`);
    }
    this.#draw();
  }

  #model() {
    return this.#models.find((each) => each.name === this.#name) ?? null;
  }

  #draw() {
    const model = this.#model();
    const isOfAdapter = isAdapter(this.#name, this.#models);
    const agents = new Map((this.#fleet?.agents ?? []).map((agent) => [agent.id, agent]));
    show(byId("model-said"), byId("model-said").textContent !== "");
    byId("model-title").classList.toggle("hidden", model !== null); // its card has the name
    show(byId("model-edit"), Boolean(model?.source) && !isOfAdapter);
    keyed(byId("model-card"), model ? [model] : [], {
      key: ({ name }) => name,
      create: createModel,
      update: (card) => updateModel(card, model, { agents, work: workOf(model, this.#rates, isOfAdapter) }),
    });
    this.#drawRequests();
  }

  #drawRequests() {
    if (this.#fleet === null) return;
    this.requests.draw(this.#fleet, (request) => request.model === this.#name);
  }
}
