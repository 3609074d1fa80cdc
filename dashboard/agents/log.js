// The last lines of an agent's log, and those that follow, while somebody looks at its page.

import { element, keyed, setText, show } from "../dom.js";
import { fullTime, plural, timeOfDay } from "../format.js";
import { connect } from "../live/connection.js";
import { get, path } from "../management.js";

const SILENCE = 15000; // milliseconds; the balancer speaks each five seconds
const MAX_LINES = 500;
const AT_END = 24; // pixels from the end within which new lines are followed

export class AgentLog {
  #id = "";
  #lines = [];
  #disconnect = null; // while lines come

  /** Draws itself into the card `root`. */
  constructor(root) {
    const heading = element("h3", "", "Log");
    heading.id = "agent-log-title";
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.note.dataset.testid = "agent-log-note";
    this.list = element("ol", "log");
    this.list.dataset.testid = "agent-log";
    this.list.tabIndex = 0;
    this.list.setAttribute("aria-labelledby", heading.id);
    root.setAttribute("aria-labelledby", heading.id);
    root.append(element("div", "card-head", heading, this.note), this.list);
  }

  /** Follow the log of the agent `id`, if that is not so already. */
  open(id) {
    if (id === this.#id && this.#disconnect) return;
    this.close();
    if (id !== this.#id) this.#lines = [];
    this.#id = id;
    setText(this.note, "reading…");
    this.#draw();
    this.#disconnect = connect({
      url: `${path("agents", id, "log")}/events`,
      events: ["lines"],
      silence: SILENCE,
      onEvent: (_name, { lines }) => this.#add(lines),
      onState: (state) => state === "lost" && this.#explain(id),
    });
  }

  /** The log is no longer shown. */
  close() {
    this.#disconnect?.();
    this.#disconnect = null;
  }

  /** Say why no lines come: an event stream does not say it. */
  async #explain(id) {
    const words = await get(path("agents", id, "log")).then(
      () => "dialling again…",
      (error) => `It cannot be read: ${error.message}`,
    );
    if (id === this.#id && this.#disconnect) setText(this.note, words);
  }

  #add(lines) {
    const newest = this.#lines.at(-1)?.number ?? 0;
    this.#lines = [...this.#lines, ...lines.filter((line) => line.number > newest)].slice(-MAX_LINES);
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < AT_END;
    this.#draw();
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
    setText(this.note, this.#words());
  }

  #words() {
    const num = this.#lines.length;
    return num ? `the last ${plural(num, "line")}` : "nothing was logged yet";
  }

  #draw() {
    show(this.list, this.#lines.length > 0);
    keyed(this.list, this.#lines, {
      key: (line) => line.number,
      create: createLine,
      update: () => {},
    });
  }
}

function createLine({ at, level, text }) {
  const time = element("time", "", timeOfDay(at));
  time.dateTime = new Date(at * 1000).toISOString();
  time.title = fullTime(at);
  const item = element("li", "", time, " ", element("b", "", level), " ", element("span", "", text));
  item.dataset.level = level;
  return item;
}
