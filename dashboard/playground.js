// The playground: a conversation with whichever agent has a free slot.

import { AnswerBubble, stillBubble } from "./bubble.js";
import { byId, element, keyed, setAttribute, setText, show } from "./dom.js";
import { generate } from "./generate.js";

const MAX_MESSAGES = 24; // the oldest are forgotten, by the page and in what it sends
const STORE = "arriero.conversation";
const SUGGESTIONS = [
  "What is a slot?",
  "How does continuous batching work?",
  "What happens when an agent is lost?",
];

const chat = byId("chat");
const prompt = byId("prompt");

let conversation = [];
let running = null; // the AbortController of the answer that is coming

/** Wire up the page's playground. */
export function startPlayground() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send(prompt.value.trim());
  });
  prompt.addEventListener("keydown", (event) => {
    const isSend = event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (isSend) event.preventDefault();
    if (isSend) send(prompt.value.trim());
    if (event.key === "Escape") stop();
  });
  byId("stop").addEventListener("click", stop);
  byId("new-chat").addEventListener("click", startOver);
  byId("suggestions").append(...SUGGESTIONS.map(suggestion));
  for (const { role, content } of recall()) {
    conversation.push({ role, content });
    append(stillBubble(role, content));
  }
}

/** Offer `names` as models to choose from. */
export function offerModels(names) {
  keyed(byId("model"), ["", ...names], {
    key: (name) => name,
    create: (name) => element("option", "", name || "any"),
    update: (option, name) => setAttribute(option, "value", name),
  });
}

function suggestion(text) {
  const button = element("button", "quiet", text);
  button.type = "button";
  button.addEventListener("click", () => send(text));
  return button;
}

async function send(text) {
  if (!text || running) return;
  const message = { role: "user", content: text };
  const question = stillBubble("user", text);
  append(question);
  prompt.value = "";
  await answer(message, question);
}

async function answer(message, question) {
  const bubble = new AnswerBubble();
  append(bubble.node);
  setRunning(new AbortController());
  announce("Answering…");
  try {
    const done = await generate(requestFor([...conversation, message]), {
      signal: running.signal,
      onEvent: (event) => keepInView(() => bubble.add(event)),
    });
    keepInView(() => announce(bubble.done(done)));
  } catch (error) {
    const retry = () => again(message, question, bubble);
    const isStop = error.name === "AbortError";
    keepInView(() => announce(isStop ? bubble.stopped() : bubble.failed(error, retry)));
  }
  setRunning(null);
  if (bubble.text.data) remember(message, { role: "assistant", content: bubble.text.data });
}

/** Ask once more what failed, in the place where it failed. */
function again(message, question, bubble) {
  if (running) return;
  bubble.node.remove();
  question.remove();
  append(question);
  conversation = conversation.filter((known) => known !== message);
  answer(message, question);
}

function requestFor(messages) {
  const body = { messages: messages.slice(-MAX_MESSAGES) };
  const numbers = { temperature: byId("temperature"), max_tokens: byId("max-tokens") };
  if (byId("model").value) body.model = byId("model").value;
  for (const [name, input] of Object.entries(numbers)) {
    if (input.value !== "") body[name] = Number(input.value);
  }
  return body;
}

function stop() {
  running?.abort();
}

function startOver() {
  stop();
  conversation = [];
  store();
  for (const bubble of chat.querySelectorAll(".bubble")) bubble.remove();
  show(byId("chat-empty"), true);
  announce("New chat.");
  prompt.focus();
}

function setRunning(controller) {
  running = controller;
  show(byId("stop"), running !== null);
  show(byId("send"), running === null);
}

function append(node) {
  show(byId("chat-empty"), false);
  chat.append(node);
  chat.scrollTop = chat.scrollHeight;
}

/** Do `change`; if the end of the chat was in view before, it is so after. */
function keepInView(change) {
  const isAtEnd = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 40;
  change();
  if (isAtEnd) chat.scrollTop = chat.scrollHeight;
}

function announce(text) {
  setText(byId("chat-status"), text);
}

function remember(...messages) {
  conversation = [...conversation, ...messages].slice(-MAX_MESSAGES);
  store();
}

// A conversation outlives a reload of its tab, and nothing else.
function store() {
  sessionStorage.setItem(STORE, JSON.stringify(conversation));
}

function recall() {
  return JSON.parse(sessionStorage.getItem(STORE) ?? "[]");
}
