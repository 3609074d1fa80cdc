// The last lines of an agent's log, read while somebody looks at its page.

import { element, keyed, setText, show } from "../dom.js";
import { plural } from "../format.js";
import { get, path } from "../management.js";

const PAUSE = 2000; // milliseconds between two readings
const MAX_LINES = 500;
const AT_END = 24; // pixels from the end within which new lines are followed

export class AgentLog {
  #id = "";
  #after = 0;
  #lines = [];
  #readAt = -Infinity;
  #isReading = false;

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

  open(id) {
    if (id === this.#id) return;
    this.#id = id;
    this.#after = 0;
    this.#lines = [];
    this.#readAt = -Infinity;
    this.#isReading = false;
    setText(this.note, "reading…");
    this.#draw();
  }

  /** Once a second while it is on the screen. */
  tick() {
    const isDue = performance.now() - this.#readAt >= PAUSE;
    if (isDue && !this.#isReading && !document.hidden) this.#read(this.#id);
  }

  async #read(id) {
    this.#isReading = true;
    this.#readAt = performance.now();
    let answer = null;
    let problem = "";
    try {
      answer = await get(`${path("agents", id, "log")}?after=${this.#after}`);
    } catch (error) {
      problem = `It cannot be read: ${error.message}`;
    }
    if (id !== this.#id) return; // another agent's page has been opened meanwhile
    this.#isReading = false;
    if (answer) this.#add(answer);
    setText(this.note, problem || this.#words());
  }

  #add({ lines, after }) {
    this.#after = after;
    if (lines.length === 0) return;
    this.#lines = [...this.#lines, ...lines].slice(-MAX_LINES);
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < AT_END;
    this.#draw();
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
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
  const date = new Date(at * 1000);
  const time = element("time", "", date.toLocaleTimeString());
  time.dateTime = date.toISOString();
  time.title = date.toLocaleString();
  const item = element("li", "", time, " ", element("b", "", level), " ", element("span", "", text));
  item.dataset.level = level;
  return item;
}
