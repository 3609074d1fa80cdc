// What words of the page mean, in one place. A word with a hint is a button: hovering shows its
// title, and a click, a tap or Enter shows the same in a popover.

import { AGENT_FIGURES, DEVICE_FIGURES, FIGURES } from "./agents/figures.js";
import { byId, element, setText } from "./dom.js";

const HINTS = {
  "Slots busy": "A slot answers one request at a time. Busy slots, of all that ready agents have.",
  Waiting: "Requests that wait for a free slot, of those that may wait; further ones are refused.",
  "Tokens per second": "Tokens of answers that all agents made in the last second.",
  Slots: "Requests that run, of those that may run at the same time.",
  Queue: "Requests that wait for a slot of this model, or for the model to be loaded.",
  "Tokens/s": "Tokens of answers made a second; of an ended request, from its first token on.",
  Moves: "How often the request went on at another agent, because its first one was lost or left.",
  Waited: "From the request's arrival until an agent took it.",
  "First token": "From the request's arrival until its answer began.",
  "KV cache": "Memory for the tokens of conversations. Used: by running requests. Cached: left by earlier requests; a prompt that begins the same is not computed again.",
  "at once": "Requests whose answers were computed together in a step, on average since the model was loaded. More at once is more tokens a second in all.",
  Labels: "What the agent was started with (--label); a model can ask for agents that have them.",
  Adapters: "LoRA adapters that are served beside the model, as MODEL:ADAPTER.",
  "Draft model": "A small model that guesses tokens ahead; the large one checks several in one step.",
  Processor: "The share of all cores' time that programs of the host took in the last seconds.",
  "Other programs": "What is used besides the models: by other programs, and, where the driver does not tell them apart, by the engines for themselves.",
  Engines: "What the engines use for themselves, besides their models.",
  Free: "What no model has and nobody uses. A model that is loaded on demand makes room if less is free than another one asks for.",
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
