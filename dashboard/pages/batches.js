// The page of batches: how far each is, how fast, what went wrong, and its results.

import { createBatchRow, isOpen, updateBatchRow } from "../batches/row.js";
import { byId, keyed, setText, show } from "../dom.js";
import { count } from "../format.js";
import { confirmed } from "../keys/confirm.js";
import { call, get, paced, path } from "../management.js";

const CANCEL = "Running lines are stopped. The answers so far are saved in the batch's files.";

export class BatchesPage {
  #batches = null;
  #problem = "";

  constructor() {
    this.load = paced(() => this.#fetch());
  }

  open() {
    setText(byId("batches-said"), "");
    this.load();
  }

  /** A request has ended: it may have been a line of a batch. */
  onEnded() {
    if (!byId("page-batches").hidden) this.load();
  }

  draw() {}

  /** Once a second: the ages, and what batches do between their lines. */
  drawThroughput() {
    if (this.#batches?.some(isOpen)) this.load();
    this.#draw();
  }

  async #fetch() {
    try {
      this.#batches = (await get("api/v1/batches")).batches;
      this.#problem = "";
    } catch (error) {
      this.#problem = `They cannot be read: ${error.message}`;
    }
    this.#draw();
  }

  async #cancel(id) {
    if (!(await confirmed({ title: `Cancel ${id}?`, text: CANCEL, act: "Cancel it" }))) return;
    try {
      await call("POST", path("batches", id, "cancel"));
      this.#say(`${id} is being cancelled.`);
    } catch (error) {
      this.#say(`Not done: ${error.message}`);
    }
    this.load();
  }

  #say(words) {
    setText(byId("batches-said"), words);
  }

  #draw() {
    const batches = this.#batches ?? [];
    const now = Date.now() / 1000;
    const isEmpty = this.#batches !== null && batches.length === 0;
    show(byId("no-batches"), isEmpty && !this.#problem);
    setText(byId("batches-problem"), this.#problem);
    show(byId("batches-problem"), this.#problem !== "");
    show(byId("batches-table"), batches.length > 0);
    const numOpen = batches.filter(isOpen).length;
    setText(byId("batches-note"), batches.length ? `${count(numOpen)} open, ${count(batches.length - numOpen)} ended` : "");
    keyed(byId("batches"), batches, {
      key: ({ id }) => id,
      create: (batch) => createBatchRow(batch, (id) => this.#cancel(id)),
      update: (row, batch) => updateBatchRow(row, batch, now),
    });
  }
}
