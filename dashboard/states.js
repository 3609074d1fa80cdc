// States of agents and requests as people read them.

import { setAttribute, setText } from "./dom.js";

const AGENT = {
  ready: "ready",
  loading: "loading",
  draining: "draining",
  drained: "drained",
  idle: "no model",
  no_model: "no model",
  failed: "failed",
};
const REQUEST = { queued: "waiting", assigned: "reading", streaming: "answering" };

export const agentState = (state) => AGENT[state] ?? state;
export const requestState = (state) => REQUEST[state] ?? state;

/** Draw a state in a pill; its class carries the colour. */
export function drawPill(pill, state, words) {
  setText(pill, words);
  setAttribute(pill, "class", `pill ${state}`);
}
