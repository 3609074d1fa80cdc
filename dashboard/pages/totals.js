// The numbers on top of every page.

import { byId, setText } from "../dom.js";
import { compact, count, rate } from "../format.js";

/** Draw the numbers in the header. */
export function drawTotals(fleet) {
  const { agents, slots, queue } = fleet;
  const numReady = agents.filter((agent) => agent.state === "ready").length;
  setText(byId("total-agents"), count(agents.length));
  setText(byId("total-agents-note"), agents.length ? `${count(numReady)} ready` : "none connected");
  setText(byId("total-slots"), `${count(slots.busy)} / ${count(slots.total)}`);
  setText(byId("total-queue"), `${count(queue.depth)} / ${count(queue.limit)}`);
  byId("slots-meter").value = slots.total ? slots.busy / slots.total : 0;
  byId("queue-meter").value = queue.limit ? queue.depth / queue.limit : 0;
}

/** Draw the fleet's speed. */
export function drawRate(throughput, tokensTotal) {
  setText(byId("total-rate"), rate(throughput.tokens_per_second));
  setText(byId("total-rate-note"), `${compact(tokensTotal)} since the start`);
}
