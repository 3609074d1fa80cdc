// One model of the desired state as a form.

import { element, setText, show } from "../dom.js";
import { FIELDS, at, withValue } from "./fields.js";

let numForms = 0;

export class ModelForm {
  constructor(model) {
    this.model = model;
    this.inputs = new Map();
    this.title = element("legend", "", model.name || "New model");
    this.node = element("fieldset", "card model-form", this.title);
    this.node.dataset.testid = "model-form";
    const number = (numForms += 1);
    const more = element("details", "more", element("summary", "", "More"));
    const grid = element("div", "fields");
    const moreGrid = element("div", "fields");
    for (const field of FIELDS) {
      (field.isMore ? moreGrid : grid).append(this.#input(field, `model-${number}-${field.path}`));
    }
    more.append(moreGrid);
    this.more = more;
    this.node.append(grid, more);
  }

  /** The model as it is written; throws if a field cannot be read, which then says why. */
  read() {
    let model = this.model;
    let failure = null;
    for (const field of FIELDS) {
      const { input } = this.inputs.get(field.path);
      this.complain(field.path, "");
      try {
        const value = field.kind.read(field.isCheck ? input.checked : input.value);
        model = withValue(model, field.path, value);
      } catch (error) {
        this.complain(field.path, error.message);
        failure ??= new Error(`${field.label}: ${error.message}`);
      }
    }
    if (failure) throw failure;
    return model;
  }

  /** Show what is wrong with a field, or that nothing is. */
  complain(path, message) {
    const { input, problem, field } = this.inputs.get(path);
    setText(problem, message);
    show(problem, message !== "");
    if (message) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    if (message && field.isMore) this.more.open = true;
  }

  focus(path = "name") {
    this.inputs.get(path).input.focus();
  }

  #input(field, id) {
    const input = element(field.isLong ? "textarea" : "input");
    const value = field.kind.show(at(this.model, field.path));
    input.id = id;
    if (field.isCheck) input.type = "checkbox";
    if (field.isCheck) input.checked = value;
    else input.value = value;
    if (field.hint) input.placeholder = field.hint;
    input.dataset.field = field.path;
    input.setAttribute("autocomplete", "off");
    input.spellcheck = false;
    const problem = element("span", "problem");
    problem.id = `${id}-problem`;
    problem.hidden = true;
    problem.setAttribute("role", "alert");
    input.setAttribute("aria-describedby", problem.id);
    const label = element("label", "", field.label);
    label.htmlFor = id;
    if (field.path === "name") {
      input.addEventListener("input", () => setText(this.title, input.value || "New model"));
    }
    this.inputs.set(field.path, { input, problem, field });
    const isWide = field.isWide || field.isLong;
    return element("div", isWide ? "field wide" : "field", label, input, problem);
  }
}
