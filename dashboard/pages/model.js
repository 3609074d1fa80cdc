// The page of one model: how it is, what it did, and its requests.

import { byId, keyed, setAttribute, setText, show } from "../dom.js";
import { HistoryPanel } from "../history/panel.js";
import { get, paced } from "../management.js";
import { createModel, updateModel } from "../models/card.js";
import { LiveTable } from "../requests/live-table.js";
import { linkTo } from "../router.js";

export class ModelPage {
  #name = "";
  #fleet = null;
  #model = null;

  constructor() {
    this.load = paced(() => this.#load());
    this.past = new HistoryPanel(byId("model-history"), "of this model");
    this.requests = new LiveTable(byId("model-requests"), "Requests for it");
  }

  open(name) {
    if (name !== this.#name) this.#model = null;
    this.#name = name;
    setText(byId("model-title"), name);
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

  drawThroughput() {
    this.past.tick();
    this.#drawRequests();
  }

  async #load() {
    const name = this.#name;
    try {
      const { models } = await get("api/v1/models");
      if (name !== this.#name) return;
      this.#model = models.find((each) => each.name === name) ?? null;
      setText(byId("model-said"), this.#model ? "" : "No agent serves it now, and it is not in the desired state.");
    } catch (error) {
      setText(byId("model-said"), `How it is cannot be read: ${error.message}`);
    }
    this.#draw();
  }

  #draw() {
    const agents = new Map((this.#fleet?.agents ?? []).map((agent) => [agent.id, agent]));
    show(byId("model-said"), byId("model-said").textContent !== "");
    byId("model-title").classList.toggle("hidden", this.#model !== null); // its card has the name
    keyed(byId("model-card"), this.#model ? [this.#model] : [], {
      key: (model) => model.name,
      create: createModel,
      update: (card, model) => updateModel(card, model, agents),
    });
    this.#drawRequests();
  }

  #drawRequests() {
    if (this.#fleet === null) return;
    this.requests.draw(this.#fleet, (request) => request.model === this.#name);
  }
}
