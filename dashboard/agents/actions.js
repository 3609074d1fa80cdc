// Drain, resume and reload an agent.

import { byId, setText, show } from "../dom.js";
import { call, path } from "../management.js";

const WORDS = {
  drain: "The agent takes no new requests; running requests may finish.",
  resume: "The agent takes requests again.",
  reload: "The agent finishes its running requests, then loads its model again.",
};
const OF_UPSTREAM = { ...WORDS, reload: "The agent finishes its running requests, then asks its server again which model it serves." };
const CORDONED = new Set(["draining", "drained"]);

export class AgentActions {
  #id = "";
  #words = WORDS;

  constructor() {
    for (const action of Object.keys(WORDS)) {
      byId(`agent-${action}`).addEventListener("click", () => this.#act(action));
    }
  }

  open(id) {
    if (this.#id !== id) setText(byId("agent-said"), "");
    this.#id = id;
  }

  draw(agent) {
    const isCordoned = CORDONED.has(agent.state);
    show(byId("agent-drain"), !isCordoned);
    show(byId("agent-resume"), isCordoned);
    this.#words = agent.model?.upstream ? OF_UPSTREAM : WORDS;
  }

  async #act(action) {
    const id = this.#id;
    const words = this.#words;
    const button = byId(`agent-${action}`);
    button.disabled = true;
    try {
      await call("POST", path("agents", id, action), { body: {} });
      this.#say(id, words[action]);
    } catch (error) {
      this.#say(id, `Not done: ${error.message}`);
    }
    button.disabled = false;
  }

  #say(id, words) {
    if (id === this.#id) setText(byId("agent-said"), words);
  }
}
