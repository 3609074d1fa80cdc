// All that is known of a request that has ended, in a dialog over the page.

import { byId, element, setText, show } from "../dom.js";
import { count, fullTime, milliseconds, rate } from "../format.js";
import { term } from "../hints.js";

/** Show it; `shade` is the class of the way it ended. */
export function openDetails(request, shade) {
  setText(byId("request-id"), request.id);
  setText(byId("request-error"), request.error ?? "");
  show(byId("request-error"), Boolean(request.error));
  const facts = factsOf(request).filter(([, value]) => value !== null && value !== "");
  byId("request-facts").replaceChildren(
    element("div", "fact", element("dt", "", "How it ended"), element("dd", "", element("span", `pill ${shade}`, request.code))),
    ...facts.map(([name, value]) =>
      element("div", "fact", element("dt", "", term(name)), element("dd", "", value)),
    ),
  );
  byId("request-details").showModal();
}

/** Pairs of a name and words, in the order of the request's life. */
function factsOf(request) {
  const time = (value) => (value === null || value === undefined ? null : milliseconds(value));
  return [
    ["Ended at", fullTime(request.ended_at)],
    ["Caller's key", request.caller || "none"],
    ["Kind", request.kind ?? null],
    ["Model", request.model],
    ["Agent", request.agent],
    ["Balancer", request.balancer ?? null],
    ["Moves", count(request.moves)],
    ["Waited", time(request.queue_ms)],
    ["First token", time(request.first_token_ms)],
    ["Took in all", time(request.total_ms)],
    ["Prompt", tokens(request.prompt_tokens, request.cached_tokens, "cached")],
    ["Answer", tokens(request.completion_tokens, request.reasoning_tokens, "reasoning")],
    ["Prompt's tokens/s", speed(request.prefill_tokens_per_second)],
    ["Tokens/s", speed(request.decode_tokens_per_second)],
  ];
}

const speed = (value) => (value === null || value === undefined ? null : rate(value));

function tokens(num, part, what) {
  return part ? `${count(num)} tokens, ${count(part)} of them ${what}` : `${count(num)} tokens`;
}
