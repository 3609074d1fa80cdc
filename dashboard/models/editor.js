// One model of the desired state in a form: changed, tried in a dry run, applied, removed.

import { byId, element, show } from "../dom.js";
import { besideField } from "../field-kinds.js";
import { confirmed } from "../keys/confirm.js";
import { call } from "../management.js";
import { difference } from "./diff.js";
import { fieldOf } from "./fields.js";
import { ModelForm } from "./model-form.js";
import { drawPlan } from "./plan.js";

const PATH = "api/v1/desired-state";
const EMPTY = { name: "", source: "", agents: { labels: {}, replicas: "all" }, preload: true };

export class DesiredStateEditor {
  #form = null; // of the model that is being changed
  #index = 0; // its place in the state; behind the others if it is new
  #saved = { models: [] }; // what the balancer has
  #etag = null;
  #isDirty = false;
  #opener = null; // the button that opened it, which gets the focus back

  /** `onRead` is called when the state was read, or has changed. */
  constructor(onRead) {
    this.onRead = onRead;
    byId("add-model").addEventListener("click", () => this.#open(null, byId("add-model")));
    byId("try-state").addEventListener("click", () => this.#try());
    byId("remove-model").addEventListener("click", () => this.#remove());
    byId("close-editor").addEventListener("click", () => this.#close());
    byId("desired-state").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#apply();
    });
    byId("desired-state").addEventListener("input", () => this.#changed());
  }

  /** Whether a model of this name is desired. */
  has(name) {
    return this.#saved.models.some((model) => model.name === name);
  }

  /** Read the state, unless the reader is changing it. */
  async read() {
    if (this.#form) return;
    try {
      const { body, etag } = await call("GET", PATH);
      this.#take(body, etag);
    } catch (error) {
      this.#say(`The desired state cannot be read: ${error.message}`, true);
    }
  }

  /** Open for the model of this name. */
  edit(name, button) {
    this.#open(name, button);
  }

  #take(state, etag) {
    this.#saved = state;
    this.#etag = etag;
    this.onRead();
  }

  /** Read the state anew and open for one of its models, or for a new one. */
  async #open(name, button) {
    if (this.#isDirty) {
      this.#say("Apply the change, or close the form without it, before you open another one.", true);
      this.#form.focus();
      return;
    }
    this.#drop();
    this.#say("");
    await this.read();
    const { models } = this.#saved;
    const found = models.findIndex((model) => model.name === name);
    if (name !== null && found === -1) return; // somebody removed it
    this.#index = name === null ? models.length : found;
    this.#form = new ModelForm(models[this.#index] ?? EMPTY);
    this.#opener = button;
    byId("model-forms").replaceChildren(this.#form.node);
    show(byId("desired-state"), true);
    show(byId("remove-model"), name !== null);
    this.#drawButtons();
    this.#form.focus(name === null ? "name" : "source");
  }

  #close() {
    this.#drop();
    this.#say("");
    this.#opener?.focus();
    this.read();
  }

  #drop() {
    this.#form = null;
    this.#isDirty = false;
    byId("model-forms").replaceChildren();
    show(byId("desired-state"), false);
    show(byId("plan"), false);
  }

  #changed() {
    this.#isDirty = true;
    show(byId("plan"), false);
    this.#drawButtons();
  }

  #drawButtons() {
    byId("apply-state").disabled = !this.#isDirty;
    byId("try-state").disabled = !this.#isDirty;
  }

  /** The whole state as it is written, or null after it was shown what is wrong. */
  #written() {
    try {
      const models = [...this.#saved.models];
      models[this.#index] = this.#form.read();
      return { models };
    } catch (error) {
      this.#say(error.message, true);
      return null;
    }
  }

  async #try() {
    const state = this.#written();
    if (!state) return;
    try {
      const { body } = await this.#put(state, "?dry_run=true");
      drawPlan(difference(this.#saved, state), body.agents ?? [], body.lacking ?? []);
      this.#say("Nothing has changed yet. These changes would be made:");
    } catch (error) {
      this.#refused(error);
    }
  }

  async #apply() {
    const state = this.#written();
    if (state) await this.#save(state, "Applied.");
  }

  async #remove() {
    const { name } = this.#saved.models[this.#index];
    const isSure = await confirmed({
      title: `Remove ${name}?`,
      text: "Its agents unload the model, and requests for the model are refused from then on.",
      act: "Remove it",
    });
    if (!isSure) return;
    const models = this.#saved.models.filter((_, index) => index !== this.#index);
    await this.#save({ models }, `${name} is removed.`);
  }

  async #save(state, words) {
    byId("apply-state").disabled = true;
    try {
      const { body, etag } = await this.#put(state);
      this.#drop();
      this.#take(body, etag);
      this.#say(words);
      this.#opener?.focus();
    } catch (error) {
      this.#drawButtons();
      this.#refused(error);
    }
  }

  #put(state, query = "") {
    const headers = this.#etag ? { "If-Match": this.#etag } : {};
    return call("PUT", PATH + query, { body: state, headers });
  }

  #refused(error) {
    if (error.status === 409) {
      this.#say("Somebody else changed it meanwhile. Close the form, open it again, and repeat your change.", true);
      return;
    }
    const problems = error.problems.length ? error.problems : [error];
    const labels = [];
    const others = [];
    for (const problem of problems) {
      const place = fieldOf(problem);
      if (place?.index !== this.#index) {
        others.push(problem.message);
        continue;
      }
      this.#form.complain(place.field.path, besideField(problem.message));
      if (labels.length === 0) this.#form.focus(place.field.path);
      labels.push(place.field.label);
    }
    const words = labels.length ? [`look at ${[...new Set(labels)].join(", ")}`, ...others] : others;
    this.#say(`Refused: ${words.join("; ")}`, true);
  }

  #say(words, isBad = false) {
    byId("state-said").replaceChildren(element("span", isBad ? "problem" : "", words));
  }
}
