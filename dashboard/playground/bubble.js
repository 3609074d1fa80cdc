// One message of the conversation as it is shown: text that grows, and a line about how it went.

import { copies, element, setText, show } from "../dom.js";
import { duration, milliseconds, plural, rate } from "../format.js";
import { markdown } from "./markdown.js";

const ENDINGS = {
  stop: "complete",
  length: "cut at the token limit",
  tool_calls: "wants a tool",
  cancelled: "cancelled",
};

/** A question with nodes that show its `pictures`; `onEdit` lets the reader change it. */
export function questionBubble(text, pictures, onEdit) {
  const words = element("p", "text", text);
  const bubble = element("div", "bubble user");
  if (pictures.length) bubble.append(element("div", "pictures", ...pictures));
  bubble.append(words);
  bubble.append(tools(words, { Edit: onEdit }));
  bubble.dataset.testid = "bubble-user";
  return bubble;
}

/** An answer that was stored, or one while it comes. `onAgain` asks for another in its place. */
export class AnswerBubble {
  constructor(onAgain) {
    this.text = document.createTextNode("");
    this.reasoning = document.createTextNode("");
    this.thoughts = element("details", "thoughts");
    this.thoughts.append(element("summary", "", "Thinking"), element("p", "text", this.reasoning));
    this.thoughts.hidden = true;
    this.thoughts.dataset.testid = "thoughts";
    this.answer = element("p", "text", this.text);
    this.answer.dataset.testid = "answer";
    this.marked = element("div", "marked");
    this.marked.dataset.testid = "answer-marked";
    this.calls = element("div", "calls");
    this.meta = element("p", "meta", "waiting for the first token…");
    this.meta.dataset.testid = "answer-meta";
    this.tools = tools(this.answer, { Regenerate: onAgain });
    this.tools.hidden = true;
    this.node = element("div", "bubble assistant streaming", this.thoughts, this.answer);
    this.node.append(this.marked, this.calls, this.meta, this.tools);
    this.node.dataset.testid = "bubble-assistant";
    this.startedAt = performance.now();
    this.firstAt = null;
    this.numPieces = 0;
    this.toolCalls = [];
  }

  /** Take in one event of the stream. */
  add(event) {
    if (event.event === "warning") this.warn(event.message);
    if (event.event === "waiting") setText(this.meta, waitingWords(event));
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

  /** What is stored of it: a message with how it went; null where there is no text. */
  stored() {
    if (!this.text.data) return null;
    const message = { role: "assistant", content: this.text.data };
    if (this.reasoning.data) message.reasoning = this.reasoning.data;
    if (this.toolCalls.length) message.calls = this.toolCalls;
    return { ...message, meta: this.meta.textContent };
  }

  /** Show a message that was stored. */
  restore({ content, reasoning = "", calls = [], meta = "" }) {
    this.text.data = content;
    this.reasoning.data = reasoning;
    show(this.thoughts, reasoning !== "");
    for (const call of calls) this.#call(call);
    this.#end(meta, "stored");
    return this;
  }

  /** It ended well, with the event `done`. Returns what to read out. */
  done(event) {
    const { usage, timings, finish_reason: reason, agent } = event;
    const ending = ENDINGS[reason] ?? reason;
    const facts = [
      ending,
      plural(usage.completion_tokens, "token"),
      usage.prompt_tokens !== undefined && promptWords(usage),
      timings.decode_tokens_per_second && `${rate(timings.decode_tokens_per_second)} tokens/s`,
      timings.first_token_ms !== null && `first token ${milliseconds(timings.first_token_ms)}`,
      timings.queue_ms >= 1 && `waited ${milliseconds(timings.queue_ms)}`,
      agent,
      timings.moves && `moved ${plural(timings.moves, "time")}`,
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

  #call(called) {
    this.toolCalls.push(called);
    const call = element("div", "call", element("strong", "", called.name));
    call.append(element("pre", "", pretty(called.arguments)));
    call.lastElementChild.tabIndex = 0;
    call.dataset.testid = "tool-call";
    this.calls.append(call);
  }

  #end(text, finish) {
    this.node.classList.remove("streaming");
    this.node.dataset.finish = finish;
    this.marked.replaceChildren(...markdown(this.text.data));
    show(this.answer, false); // the text as it came, for copying
    show(this.marked, this.text.data !== "");
    show(this.tools, this.text.data !== "");
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

/** Copy the text of `source`, and further actions by their names. */
function tools(source, actions) {
  const bar = element("div", "bubble-tools");
  const copy = element("button", "quiet", "Copy");
  copy.type = "button";
  copies(copy, source);
  bar.append(copy);
  for (const [name, action] of Object.entries(actions)) {
    const button = element("button", "quiet", name);
    button.type = "button";
    button.addEventListener("click", action);
    bar.append(button);
  }
  return bar;
}

const promptWords = ({ prompt_tokens: prompt, cached_tokens: cached }) =>
  cached ? `prompt ${prompt}, ${cached} cached` : `prompt ${prompt}`;

function waitingWords({ for: what, position, seconds_left: left, reason }) {
  const words = [what === "model" ? "waiting for the model" : "waiting for a slot"];
  if (position) words.push(`number ${position}`);
  if (left !== null && left !== undefined) words.push(`about ${duration(left)}`);
  if (reason) words.push(reason);
  return words.join(" · ");
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return String(json); // not whole, or not JSON: as the model wrote it
  }
}
