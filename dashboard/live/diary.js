// The diary on the first page: what happened, the newest first, and what happens.

import { byId, element, keyed, setText, show } from "../dom.js";
import { dateAndTime, fullTime } from "../format.js";
import { labelCells } from "../labels.js";
import { drawPill } from "../states.js";
import { connect } from "./connection.js";

const MAX_ROWS = 100;
const SILENCE = 40000; // the balancer says every 15 s that it is alive
const HEADS = [["When"], ["What"], ["Of"], ["Details"], ["By"]];
const WORDS = {
  balancer_started: ["balancer started", "calm"],
  leader_changed: ["leader changed", "calm"],
  host_came: ["host came", "good"],
  host_went: ["host went", "bad"],
  host_drained: ["drained", "queued"],
  host_resumed: ["resumed", "good"],
  host_forgotten: ["forgotten", ""],
  model_loaded: ["model loaded", "good"],
  model_failed: ["model failed", "bad"],
  models_changed: ["models changed", "calm"],
  issue_began: ["issue", "queued"],
  issue_ended: ["issue over", "good"],
  key_made: ["key made", "calm"],
  key_rotated: ["key rotated", "calm"],
  key_revoked: ["key revoked", "calm"],
  refused: ["refused", "bad"],
};

export class Diary {
  #entries = []; // the newest first

  /** `onEntry` is called after something happened. */
  constructor(onEntry) {
    this.onEntry = onEntry;
  }

  /** Follow it for as long as the page is open. */
  start() {
    connect({
      url: "api/v1/diary",
      events: ["entry", "alive"],
      silence: SILENCE,
      onEvent: (name, entry) => name === "entry" && this.#add(entry),
      onState: () => {},
    });
  }

  #add(entry) {
    if (this.#entries.some((each) => each.number === entry.number)) return;
    this.#entries = [entry, ...this.#entries].slice(0, MAX_ROWS);
    this.draw();
    this.onEntry();
  }

  draw() {
    show(byId("diary-table"), this.#entries.length > 0);
    byId("diary-table").classList.toggle("by-nobody", this.#entries.every(({ by }) => !by));
    setText(byId("diary-note"), this.#entries.length ? "" : "nothing yet");
    keyed(byId("diary"), this.#entries, { key: (entry) => entry.number, create: row, update: () => {} });
  }
}

function row({ at, kind, subject, message, by }) {
  const [words, shade] = WORDS[kind] ?? [kind, ""];
  const pill = element("span", "pill");
  drawPill(pill, shade, words);
  const time = element("time", "", dateAndTime(at));
  time.title = fullTime(at);
  time.dateTime = new Date(at * 1000).toISOString();
  const cells = [time, pill, subject, message, by ?? ""];
  const line = element("tr", "", ...cells.map((each) => element("td", each === message ? "why" : "", each)));
  labelCells(line, HEADS);
  line.dataset.testid = "diary-entry";
  return line;
}
