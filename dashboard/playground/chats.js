// The reader's chats, stored in this browser alone.

import { titleOf } from "./conversation.js";

const STORE = "arriero.chats";
const MAX_CHATS = 40; // the oldest are forgotten
const MAX_MESSAGES = 400; // of one chat

export class Chats {
  constructor(storage = localStorage) {
    this.storage = storage;
    this.all = recall(storage);
    this.current = this.all[0] ?? this.#new();
  }

  /** Begin a chat; an empty one is used again. The system prompt is taken along. */
  begin() {
    const { system } = this.current;
    const empty = this.all.find((chat) => chat.messages.length === 0 && !chat.pending);
    this.current = empty ?? this.#new();
    this.current.system = system;
    this.save();
  }

  choose(id) {
    this.current = this.all.find((chat) => chat.id === id) ?? this.current;
  }

  /** Forget a chat; another becomes the current one if it was that. */
  forget(id) {
    this.all = this.all.filter((chat) => chat.id !== id);
    if (this.current.id === id) this.current = this.all[0] ?? this.#new();
    this.save();
  }

  /** Keep a question that has no answer yet: it survives a reload of the page. */
  setPending(chat, question) {
    chat.pending = question;
    this.save();
  }

  /** Keep `messages` as those of `chat`, unless it was forgotten meanwhile. */
  setMessages(chat, messages) {
    delete chat.pending;
    const extra = Math.max(0, messages.length - MAX_MESSAGES);
    chat.messages = messages.slice(extra + (extra % 2));
    this.save();
  }

  titles() {
    return this.all.map(({ id, messages, pending }) => ({
      id,
      title: titleOf(pending ? [...messages, pending] : messages),
    }));
  }

  /** Write all chats; where the browser has no room, without the oldest ones. */
  save() {
    let stored = this.all.slice(0, MAX_CHATS);
    while (stored.length) {
      try {
        this.storage.setItem(STORE, JSON.stringify(stored));
        return;
      } catch {
        stored = stored.slice(0, -1);
      }
    }
  }

  #new() {
    const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    const chat = { id, system: "", messages: [] };
    this.all.unshift(chat);
    this.all.splice(MAX_CHATS);
    return chat;
  }
}

function recall(storage) {
  try {
    const chats = JSON.parse(storage.getItem(STORE) ?? "[]");
    return Array.isArray(chats) ? chats.filter((chat) => Array.isArray(chat?.messages)) : [];
  } catch {
    return []; // written by something else: begin anew
  }
}
