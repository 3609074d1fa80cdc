// The form that makes a key.

import { byId, element, setText, show } from "../dom.js";
import { besideField } from "../field-kinds.js";
import { FIELDS, isOf, specOf } from "./fields.js";

export class KeyForm {
  #parts = new Map();

  /** `onMake(spec)` makes the key; what it throws is shown at the field that it names. */
  constructor(onMake) {
    this.onMake = onMake;
    for (const field of FIELDS) {
      byId(field.isLimit ? "key-limits" : "key-fields").append(this.#part(field));
    }
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#make();
    });
    this.#parts.get("role").input.addEventListener("input", () => this.#drawRole());
    this.#drawRole();
  }

  async #make() {
    const button = byId("make-key");
    button.disabled = true;
    this.#complain(null, "");
    try {
      const texts = [...this.#parts].map(([name, { input }]) => [name, input.value]);
      await this.onMake(specOf(Object.fromEntries(texts)));
      byId("key-form").reset();
      this.#drawRole();
    } catch (error) {
      this.#complain(error.field, error.message);
    }
    button.disabled = false;
  }

  /** Show what is wrong at the field `name`, or under the form where that is no field of it. */
  #complain(name, message) {
    const wrong = this.#parts.has(name) ? name : null;
    setText(byId("key-problem"), wrong === null ? message : "");
    for (const [each, { input, problem, field }] of this.#parts) {
      const isWrong = each === wrong;
      setText(problem, isWrong ? besideField(message) : "");
      show(problem, isWrong);
      if (isWrong) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      if (isWrong && field.isLimit) byId("key-more").open = true;
      if (isWrong) input.focus();
    }
  }

  #drawRole() {
    const role = this.#parts.get("role").input.value;
    for (const { node, field } of this.#parts.values()) show(node, isOf(field, role));
  }

  #part(field) {
    const input = field.choices ? select(field.choices) : element("input");
    input.id = `key-${field.name}`;
    input.dataset.testid = input.id;
    input.setAttribute("autocomplete", "off");
    if (!field.choices) {
      input.placeholder = field.hint ?? "no limit";
      input.spellcheck = false;
    }
    const label = element("label", "", field.label);
    label.htmlFor = input.id;
    const problem = element("span", "problem");
    problem.id = `${input.id}-problem`;
    problem.hidden = true;
    problem.setAttribute("role", "alert");
    input.setAttribute("aria-describedby", problem.id);
    const node = element("div", "field", label, input, problem);
    this.#parts.set(field.name, { input, problem, field, node });
    return node;
  }
}

/** A choice among the names of a list, or of an object that says what each means. */
function select(choices) {
  const named = Array.isArray(choices) ? choices.map((name) => [name, ""]) : Object.entries(choices);
  const options = named.map(([name, meaning]) => {
    const option = element("option", "", [name, meaning].filter(Boolean).join(": "));
    option.value = name;
    return option;
  });
  return element("select", "", ...options);
}
