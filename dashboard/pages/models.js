// The page of models: how each is, and an editor that opens for one of them.

import { byId, keyed, setText, show } from "../dom.js";
import { plural } from "../format.js";
import { get, paced } from "../management.js";
import { isAdapter, workOf } from "../models/card.js";
import { DesiredStateEditor } from "../models/editor.js";
import { createModelRow, updateModelRow } from "../models/row.js";
import { linkTo, rewriteAddress } from "../router.js";
import { may } from "../session.js";

export class ModelsPage {
  #fleet = null;
  #models = [];
  #rates = {};
  #refusal = ""; // why the form that the address asks for is not there

  constructor() {
    this.load = paced(() => this.#load());
    this.editor = new DesiredStateEditor(() => {
      this.load();
      this.#draw();
    });
  }

  /** With `edit` in the address the form opens for the model of that name. */
  open(_argument, query) {
    const name = query.get("edit");
    this.#refusal = name === null || may("administer") ? "" : `to edit ${name}, log in with a key of the role admin`;
    this.load();
    if (name === null) this.editor.read();
    else this.editor.edit(name, null);
    rewriteAddress(linkTo("models")); // to load the page again is not to open the form again
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
    show(byId("no-models"), this.#models.length === 0);
    show(byId("models-table"), this.#models.length > 0);
    const num = this.#models.length ? plural(this.#models.length, "model") : "";
    setText(byId("models-note"), [num, this.#refusal].filter(Boolean).join(" · "));
    keyed(byId("models"), this.#models, {
      key: (model) => model.name,
      create: (model) => createModelRow(model, (name, button) => this.editor.edit(name, button)),
      update: (row, model) =>
        updateModelRow(row, model, {
          agents,
          work: workOf(model, this.#rates, isAdapter(model.name, this.#models)),
          isDesired: this.editor.has(model.name),
        }),
    });
  }
}
