// The page of models: how each is, and an editor that opens for one of them.

import { byId, keyed, setText, show } from "../dom.js";
import { plural } from "../format.js";
import { get, paced } from "../management.js";
import { DesiredStateEditor } from "../models/editor.js";
import { createModelRow, updateModelRow } from "../models/row.js";

export class ModelsPage {
  #fleet = null;
  #models = [];
  #rates = {};

  constructor() {
    this.load = paced(() => this.#load());
    this.editor = new DesiredStateEditor(() => {
      this.load();
      this.#draw();
    });
  }

  open() {
    this.load();
    this.editor.read();
  }

  draw(fleet) {
    this.#fleet = fleet;
    this.load();
    this.#draw();
  }

  drawThroughput(event) {
    this.#rates = event.agents;
    this.#draw();
  }

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
    const names = new Set(this.#models.map((model) => model.name));
    show(byId("no-models"), this.#models.length === 0);
    show(byId("models-table"), this.#models.length > 0);
    setText(byId("models-note"), this.#models.length ? plural(this.#models.length, "model") : "");
    keyed(byId("models"), this.#models, {
      key: (model) => model.name,
      create: (model) => createModelRow(model, (name, button) => this.editor.edit(name, button)),
      update: (row, model) =>
        updateModelRow(row, model, {
          agents,
          rates: this.#rates,
          isAdapter: names.has(model.name.slice(0, Math.max(0, model.name.lastIndexOf(":")))),
          isDesired: this.editor.has(model.name),
        }),
    });
  }
}
