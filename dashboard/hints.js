// What words of the page mean, in one place. A word with a hint is a button: hovering shows its
// title, and a click, a tap or Enter shows the same in a popover.

import { AGENT_FIGURES, DEVICE_FIGURES, FIGURES } from "./agents/figures.js";
import { byId, element, setText } from "./dom.js";

const HINTS = {
  "Slots busy": "A slot answers one request at a time. Busy slots, of all that ready agents have.",
  Waiting: "Requests that wait for a free slot, and the most that may wait; further requests are refused.",
  "Tokens per second": "Tokens of answers that all agents made in the last second.",
  Slots: "Running requests, and the most that may run at the same time.",
  Queue: "Requests that wait for a slot of this model, or for the model to be loaded.",
  "Tokens/s": "Tokens of the answer per second; for an ended request, from its first token on.",
  Moves: "How often the request moved to another agent, because the agent before was lost or left.",
  Waited: "From the request's arrival until an agent took it.",
  "First token": "From the request's arrival until its answer began.",
  "KV cache": "Memory for the tokens of requests (KV cache). Used: by running requests. Cached: kept from earlier requests, so that a prompt with the same beginning is not computed again.",
  "at once": "Requests whose answers were computed together in a step, on average since the model was loaded. More requests at once give more tokens per second in all.",
  Labels: "The labels with which the agent was started (--label); a model can require agents with certain labels.",
  Adapters: "LoRA adapters that are served beside the model, as MODEL:ADAPTER.",
  "Draft model": "A small model that guesses tokens ahead; the large one checks several in one step.",
  Processor: "The share of all cores' time that programs of the host took in the last seconds.",
  "Other programs": "Memory used for other things than models: by other programs, and by the engines themselves if the driver does not tell them apart.",
  Engines: "Memory that the engines use for other things than their models.",
  Free: "Free memory. If a model needs more than is free, unused models that are loaded on demand are unloaded.",
  ...Object.fromEntries([...FIGURES, ...AGENT_FIGURES, ...DEVICE_FIGURES].filter(({ hint }) => hint).map(({ title, hint }) => [title, hint])),
};

/** `words` as a button that explains them, or as they are where they need no help. */
export function term(words) {
  if (!Object.hasOwn(HINTS, words)) return words;
  const button = element("button", "term", words);
  button.type = "button";
  explain(button);
  return button;
}

function explain(button) {
  const text = HINTS[button.textContent];
  button.title = text;
  button.addEventListener("click", () => {
    const hint = byId("hint");
    setText(hint, `${button.textContent}: ${text}`);
    hint.togglePopover?.(true);
  });
}

/** Hide the popover, as another page is shown. */
export function hideHint() {
  byId("hint").hidePopover?.();
}

/** Explain the words of the page itself: all that are in an element with `data-term`. */
export function explainTerms() {
  for (const node of document.querySelectorAll("[data-term]")) {
    node.replaceChildren(term(node.textContent));
  }
}
