// One message of the conversation as it is shown: text that grows, and a line about how it went.

import { element, setText, show } from "./dom.js";
import { duration, milliseconds, plural, rate } from "./format.js";

const ENDINGS = {
  stop: "complete",
  length: "cut at the token limit",
  tool_calls: "wants a tool",
  cancelled: "cancelled",
};

/** A message that is complete as it stands. */
export function stillBubble(role, text) {
  const bubble = element("div", `bubble ${role}`, element("p", "text", text));
  bubble.dataset.testid = `bubble-${role}`;
  return bubble;
}

/** An answer while it comes. */
export class AnswerBubble {
  constructor() {
    this.text = document.createTextNode("");
    this.reasoning = document.createTextNode("");
    this.thoughts = element("details", "thoughts");
    this.thoughts.append(element("summary", "", "Thinking"), element("p", "text", this.reasoning));
    this.thoughts.hidden = true;
    this.answer = element("p", "text", this.text);
    this.answer.dataset.testid = "answer";
    this.meta = element("p", "meta", "waiting for the first token…");
    this.meta.dataset.testid = "answer-meta";
    this.node = element("div", "bubble assistant streaming", this.thoughts, this.answer, this.meta);
    this.node.dataset.testid = "bubble-assistant";
    this.startedAt = performance.now();
    this.firstAt = null;
    this.numPieces = 0;
  }

  /** Take in one event of the stream. */
  add(event) {
    if (event.event === "warning") this.warn(event.message);
    if (event.event === "tool_call") this.#call(event.call);
    if (event.event !== "token") return;
    this.firstAt ??= performance.now();
    this.numPieces += 1;
    if (event.kind === "content") this.text.appendData(event.text);
    if (event.kind === "reasoning") this.reasoning.appendData(event.text);
    show(this.thoughts, this.reasoning.data !== "");
    setText(this.meta, this.#progress());
  }

  warn(message) {
    this.node.insertBefore(element("p", "warning", message), this.meta);
  }

  /** It ended well, with the event `done`. Returns what to read out. */
  done(event) {
    const { usage, timings, finish_reason: reason, agent } = event;
    const ending = ENDINGS[reason] ?? reason;
    const facts = [
      ending,
      plural(usage.completion_tokens, "token"),
      timings.decode_tokens_per_second && `${rate(timings.decode_tokens_per_second)} tokens/s`,
      timings.first_token_ms !== null && `first token ${milliseconds(timings.first_token_ms)}`,
      timings.queue_ms >= 1 && `waited ${milliseconds(timings.queue_ms)}`,
      agent,
    ];
    this.#end(facts.filter(Boolean).join(" · "), reason);
    return `Answer ${ending}, ${plural(usage.completion_tokens, "token")}.`;
  }

  /** The reader stopped it; what came stays. */
  stopped() {
    this.#end(`stopped · ${this.#progress()}`, "stopped");
    return "Stopped.";
  }

  /** It failed; `onRetry` starts over. */
  failed(error, onRetry) {
    const again = element("button", "quiet", "Try again");
    again.type = "button";
    again.addEventListener("click", onRetry);
    const box = element("div", "failure", element("p", "", error.message), again);
    box.dataset.testid = "answer-error";
    this.node.insertBefore(box, this.meta);
    this.#end(error.code, "error");
    return `No answer: ${error.message}`;
  }

  #call({ name, arguments: given }) {
    const call = element("p", "call", `${name} ${given}`);
    call.dataset.testid = "tool-call";
    this.node.insertBefore(call, this.meta);
  }

  #end(text, finish) {
    this.node.classList.remove("streaming");
    this.node.dataset.finish = finish;
    show(this.answer, this.text.data !== "");
    setText(this.meta, text);
  }

  #progress() {
    if (this.firstAt === null) return "before the first token";
    const seconds = (performance.now() - this.firstAt) / 1000;
    const speed = seconds > 0.5 ? ` · about ${rate(this.numPieces / seconds)} tokens/s` : "";
    const first = milliseconds(this.firstAt - this.startedAt);
    return `${duration(seconds)}${speed} · first token ${first}`;
  }
}
