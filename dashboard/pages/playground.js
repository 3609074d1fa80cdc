// The playground: conversations with whichever agent has a free slot.

import { inferenceUrl } from "../commands.js";
import { byId, copies, element, keyed, setAttribute, setText, show } from "../dom.js";
import { AnswerBubble, questionBubble } from "../playground/bubble.js";
import { Chats } from "../playground/chats.js";
import { messagesToSend } from "../playground/conversation.js";
import { generate } from "../playground/generate.js";
import { Pictures } from "../playground/pictures.js";
import { chosenSettings, startSettings } from "../playground/settings.js";
import { asCurl, asPython, PICTURE } from "../playground/snippets.js";
import { Tray } from "../playground/tray.js";
import { needsKey } from "../session.js";

const TOY = "arriero-demo"; // the model of `make demo`

const SUGGESTIONS = [
  "What is a slot?",
  "How does continuous batching work?",
  "What happens when an agent is lost?",
];

export class PlaygroundPage {
  #chats = new Chats();
  #pictures = new Pictures();
  #tray = new Tray(this.#pictures);
  #running = null; // the AbortController of the answer that is coming

  constructor() {
    startSettings();
    const prompt = byId("prompt");
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send(prompt.value.trim());
    });
    prompt.addEventListener("keydown", (event) => {
      const isSend = event.key === "Enter" && !event.shiftKey && !event.isComposing;
      if (isSend) event.preventDefault();
      if (isSend) this.#send(prompt.value.trim());
      if (event.key === "Escape") this.#stop();
    });
    byId("system").addEventListener("input", () => {
      this.#chats.current.system = byId("system").value;
      this.#chats.save();
    });
    byId("stop").addEventListener("click", () => this.#stop());
    byId("new-chat").addEventListener("click", () => this.#startOver());
    byId("forget-chat").addEventListener("click", () => this.#forget());
    byId("suggestions").append(...SUGGESTIONS.map((text) => this.#suggestion(text)));
    byId("as-curl").addEventListener("click", () => this.#showSnippet(asCurl));
    byId("as-python").addEventListener("click", () => this.#showSnippet(asPython));
    byId("close-snippet").addEventListener("click", () => show(byId("snippet"), false));
    copies(byId("copy-snippet"), byId("snippet-text"));
    this.#drawChat();
  }

  open() {}

  draw(fleet) {
    const models = fleet.agents.flatMap((agent) => agent.models);
    const generating = models.filter((model) => model.tasks.includes("generate"));
    show(byId("toy-note"), generating.some((model) => model.name === TOY));
    offerModels([...new Set(generating.map((model) => model.name))].sort());
    this.#tray.offer(generating.some((model) => model.tasks.includes("vision")));
  }

  drawThroughput() {}

  // ---- asking

  async #send(text) {
    if ((!text && this.#tray.isEmpty) || this.#running) return;
    const question = asked(text, this.#tray.ids);
    byId("prompt").value = "";
    this.#tray.fill([]);
    await this.#ask(this.#chats.current.messages, question);
  }

  /** Ask `question` after the messages `before`; what came after them is replaced. */
  async #ask(before, question) {
    if (this.#running) return;
    const chat = this.#chats.current;
    const body = this.#body([...before, question], chat.system, (id) => this.#pictures.url(id));
    if (body === null) {
      this.#putBack(question);
      return;
    }
    if (before.length < chat.messages.length) {
      this.#chats.setMessages(chat, before);
      this.#drawChat();
    }
    this.#chats.setPending(chat, question);
    this.#drawChats();
    const again = () => this.#ask(before, question);
    const shown = this.#shown(before, question);
    const bubble = new AnswerBubble(again);
    append(shown, bubble.node);
    const isWhole = await this.#answer(body, bubble, () => {
      shown.remove();
      bubble.node.remove();
      again();
    });
    const answer = bubble.stored();
    if (answer) this.#chats.setMessages(chat, [...before, question, answer]);
    else if (isWhole) announce("The answer is empty.");
    this.#drawChats();
  }

  /** Whether it came to its own end. */
  async #answer(body, bubble, onRetry) {
    const stopper = new AbortController();
    this.#setRunning(stopper);
    announce("Answering…");
    try {
      const done = await generate(body, {
        signal: stopper.signal,
        onEvent: (event) => keepInView(() => bubble.add(event)),
      });
      keepInView(() => announce(bubble.done(done)));
      return true;
    } catch (error) {
      const isStop = error.name === "AbortError";
      keepInView(() => announce(isStop ? bubble.stopped() : bubble.failed(error, onRetry)));
      return false;
    } finally {
      this.#setRunning(null);
    }
  }

  /** The request, or null after it was shown what is wrong with its settings. */
  #body(messages, system, urlOf) {
    try {
      const body = { messages: messagesToSend(messages, system, urlOf), ...chosenSettings() };
      setText(byId("settings-problem"), "");
      return body;
    } catch (error) {
      byId("settings").open = true;
      setText(byId("settings-problem"), error.message);
      return null;
    }
  }

  #stop() {
    this.#running?.abort();
  }

  #setRunning(controller) {
    this.#running = controller;
    show(byId("stop"), controller !== null);
    show(byId("send"), controller === null);
  }

  #shown(before, question) {
    const pictures = (question.pictures ?? []).map((id) => this.#pictures.node(id));
    return questionBubble(question.content, pictures, () => this.#edit(before, question));
  }

  #edit(before, question) {
    if (this.#running) return;
    this.#chats.setMessages(this.#chats.current, before);
    this.#drawChat();
    byId("prompt").value = "";
    this.#tray.fill([]);
    this.#putBack(question);
    byId("prompt").focus();
  }

  /** Into the composer, unless the reader wrote something else there. */
  #putBack({ content, pictures = [] }) {
    byId("prompt").value ||= content;
    if (this.#tray.isEmpty) this.#tray.fill(pictures);
  }

  #suggestion(text) {
    const button = element("button", "quiet", text);
    button.type = "button";
    button.addEventListener("click", () => this.#send(text));
    return button;
  }

  #showSnippet(write) {
    const text = byId("prompt").value.trim();
    const { messages, system } = this.#chats.current;
    const hasNext = text || !this.#tray.isEmpty;
    const sent = hasNext ? [...messages, asked(text, this.#tray.ids)] : messages.slice(0, -1);
    const example = [asked(SUGGESTIONS[0], [])];
    const urlOf = (id) => this.#pictures.url(id) && PICTURE;
    const body = this.#body(sent.length ? sent : example, system, urlOf);
    if (body === null) return;
    setText(byId("snippet-text"), write(inferenceUrl(), body, needsKey()));
    show(byId("snippet"), true);
    byId("snippet-text").focus();
  }

  // ---- chats

  #startOver() {
    this.#stop();
    this.#chats.begin();
    this.#drawChat();
    announce("New chat.");
    byId("prompt").focus();
  }

  #choose(id) {
    if (id === this.#chats.current.id) return;
    this.#stop();
    this.#chats.choose(id);
    this.#drawChat();
  }

  #forget() {
    this.#stop();
    this.#chats.forget(this.#chats.current.id);
    this.#drawChat();
    announce("Chat forgotten.");
  }

  /** Draw the current chat from what is stored. */
  #drawChat() {
    const { messages, system, pending } = this.#chats.current;
    for (const bubble of byId("chat").querySelectorAll(".bubble")) bubble.remove();
    show(byId("chat-empty"), true);
    byId("system").value = system;
    messages.forEach((message, index) => {
      if (message.role === "user") {
        const before = messages.slice(0, index);
        append(this.#shown(before, message));
      } else {
        const before = messages.slice(0, index - 1);
        const again = () => this.#ask(before, messages[index - 1]);
        append(new AnswerBubble(again).restore(message).node);
      }
    });
    if (pending) this.#putBack(pending);
    this.#drawChats();
  }

  #drawChats() {
    const { id: current } = this.#chats.current;
    keyed(byId("chats"), this.#chats.titles(), {
      key: (chat) => chat.id,
      create: (chat) => {
        const button = element("button", "chat-title");
        button.type = "button";
        button.addEventListener("click", () => this.#choose(chat.id));
        return element("li", "", button);
      },
      update: (item, chat) => {
        setText(item.firstElementChild, chat.title);
        setAttribute(item.firstElementChild, "aria-current", String(chat.id === current));
      },
    });
  }
}

/** The reader's message; `pictures` are ids. */
function asked(content, pictures) {
  return { role: "user", content, ...(pictures.length && { pictures }) };
}

function offerModels(names) {
  keyed(byId("model"), ["", ...names], {
    key: (name) => name,
    create: (name) => element("option", "", name || "any"),
    update: (option, name) => setAttribute(option, "value", name),
  });
}

function append(...nodes) {
  const chat = byId("chat");
  show(byId("chat-empty"), false);
  chat.append(...nodes);
  chat.scrollTop = chat.scrollHeight;
}

/** Do `change`; if the end of the chat was in view before, it is so after. */
function keepInView(change) {
  const chat = byId("chat");
  const isAtEnd = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 40;
  change();
  if (isAtEnd) chat.scrollTop = chat.scrollHeight;
}

function announce(text) {
  setText(byId("chat-status"), text);
}
