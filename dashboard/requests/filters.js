// Which requests the page of requests shows: the inputs, and the same in the page's address.

import { byId, element, keyed, show } from "../dom.js";
import { linkTo, rewriteAddress } from "../router.js";

const INPUTS = {
  q: "request-search",
  state: "request-state",
  model: "request-model",
  agent: "request-agent",
  caller: "request-caller",
  code: "request-code",
};
const ALL = { model: "all models", agent: "all agents", caller: "all callers", code: "all endings" };
const OF_ENDED = ["code"]; // what is known of requests that have ended alone
const MAX_OFFERED = 500;

export class Filters {
  #offered = Object.fromEntries(Object.keys(ALL).map((name) => [name, new Set()]));

  /** `onChange()` is called after each choice of the reader. */
  constructor(onChange) {
    for (const id of Object.values(INPUTS)) {
      byId(id).addEventListener("input", () => this.#chosen(onChange));
    }
    byId("clear-filters").addEventListener("click", () => {
      this.read(new URLSearchParams({ state: this.values().state }));
      this.#chosen(onChange);
    });
    for (const name of Object.keys(ALL)) this.offer(name, []);
  }

  /** What is chosen, by name; empty texts choose nothing. */
  values() {
    return Object.fromEntries(Object.entries(INPUTS).map(([name, id]) => [name, byId(id).value]));
  }

  /** Choose what the address says. */
  read(query) {
    for (const [name, id] of Object.entries(INPUTS)) {
      const value = query.get(name) ?? "";
      if (name in ALL) this.offer(name, [value]);
      byId(id).value = value;
      if (byId(id).value !== value) byId(id).value = ""; // no such state
    }
    this.#draw();
  }

  /** Let the reader choose these as well as those before. */
  offer(name, values) {
    const offered = this.#offered[name];
    const numBefore = offered.size;
    for (const value of values) if (value && offered.size < MAX_OFFERED) offered.add(value);
    if (offered.size === numBefore && numBefore > 0) return;
    keyed(byId(INPUTS[name]), ["", ...[...offered].sort()], {
      key: (value) => value,
      create: (value) => {
        const option = element("option", "", value || ALL[name]);
        option.value = value;
        return option;
      },
      update: () => {},
    });
  }

  #chosen(onChange) {
    this.#draw();
    rewriteAddress(linkTo("requests", "", this.values()));
    onChange();
  }

  #draw() {
    const values = this.values();
    for (const name of OF_ENDED) {
      show(byId(INPUTS[name]).closest("label"), values.state === "ended");
    }
    show(byId("clear-filters"), Object.entries(values).some(([name, value]) => name !== "state" && value));
  }
}
