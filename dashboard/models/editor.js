// The desired state in a form: read, changed, tried in a dry run, applied.

import { byId, element, setText, show } from "../dom.js";
import { count } from "../format.js";
import { call } from "../management.js";
import { difference } from "./diff.js";
import { fieldOf } from "./fields.js";
import { ModelForm } from "./model-form.js";
import { drawPlan } from "./plan.js";

const PATH = "api/v1/desired-state";
const EMPTY = { name: "", source: "", agents: { labels: {}, replicas: "all" }, preload: true };

export class DesiredStateEditor {
  #forms = [];
  #saved = null; // what the balancer has
  #etag = null;
  #isDirty = false;

  /** `onApplied` is called after a change. */
  constructor(onApplied) {
    this.onApplied = onApplied;
    byId("add-model").addEventListener("click", () => this.#add(EMPTY).focus());
    byId("reread-state").addEventListener("click", () => this.#read());
    byId("try-state").addEventListener("click", () => this.#try());
    byId("desired-state").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#apply();
    });
    byId("desired-state").addEventListener("input", () => this.#changed());
  }

  /** The page is shown: read the state, unless there are changes of the reader's. */
  open() {
    if (!this.#isDirty) this.#read();
  }

  async #read() {
    try {
      const { body, etag } = await call("GET", PATH);
      this.#show(body, etag);
      this.#say("");
    } catch (error) {
      this.#say(`The desired state cannot be read: ${error.message}`, true);
    }
  }

  #show(state, etag) {
    this.#saved = state;
    this.#etag = etag;
    this.#forms = [];
    byId("model-forms").replaceChildren();
    for (const model of state.models) this.#add(model);
    this.#isDirty = false;
    this.#drawButtons();
    show(byId("plan"), false);
  }

  #add(model) {
    const form = new ModelForm(model, () => this.#remove(form));
    this.#forms.push(form);
    byId("model-forms").append(form.node);
    if (model === EMPTY) this.#changed();
    return form;
  }

  #remove(form) {
    this.#forms = this.#forms.filter((each) => each !== form);
    form.node.remove();
    this.#changed();
    byId("add-model").focus();
  }

  #changed() {
    this.#isDirty = true;
    show(byId("plan"), false);
    this.#drawButtons();
  }

  #drawButtons() {
    byId("apply-state").disabled = !this.#isDirty;
    byId("try-state").disabled = !this.#isDirty;
    show(byId("no-desired"), this.#forms.length === 0);
    setText(byId("desired-note"), this.#isDirty ? "changed, not applied" : "");
  }

  /** The state as it is written, or null after it was shown what is wrong. */
  #written() {
    let failure = null;
    const models = [];
    for (const form of this.#forms) {
      try {
        models.push(form.read());
      } catch (error) {
        failure ??= error;
      }
    }
    if (failure) this.#say(failure.message, true);
    return failure ? null : { models };
  }

  async #try() {
    const state = this.#written();
    if (!state) return;
    try {
      const { body } = await this.#put(state, "?dry_run=true");
      drawPlan(difference(this.#saved, state), body.agents ?? []);
      this.#say("Nothing has changed yet: this is what would.");
    } catch (error) {
      this.#refused(error);
    }
  }

  async #apply() {
    const state = this.#written();
    if (!state) return;
    byId("apply-state").disabled = true;
    try {
      const { body, etag } = await this.#put(state);
      this.#show(body, etag);
      this.#say("Applied.");
      this.onApplied();
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
      this.#say("Somebody else changed it meanwhile. Read it again, then repeat your change.", true);
      return;
    }
    const problems = error.problems.length ? error.problems : [error];
    let num = 0;
    for (const problem of problems) {
      const place = fieldOf(problem);
      const form = place && this.#forms[place.index];
      if (!form) continue;
      form.complain(place.path, problem.message);
      if (num === 0) form.focus(place.path);
      num += 1;
    }
    const more = problems.length > 1 ? `${count(problems.length)} problems. ` : "";
    this.#say(`Refused: ${more}${error.message}`, true);
  }

  #say(words, isBad = false) {
    const line = byId("state-said");
    line.replaceChildren(element("span", isBad ? "problem" : "", words));
  }
}
