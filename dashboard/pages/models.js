// The page of models: how each is, and the desired state.

import { byId, keyed, setText, show } from "../dom.js";
import { plural } from "../format.js";
import { get, paced } from "../management.js";
import { createModel, updateModel } from "../models/card.js";
import { DesiredStateEditor } from "../models/editor.js";

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
