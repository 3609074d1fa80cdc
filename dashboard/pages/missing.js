// What is shown where the address leads to no page.

import { byId, setText } from "../dom.js";

export class MissingPage {
  /** `name` is what was asked for. */
  open(name) {
    setText(byId("missing-name"), name);
  }

  draw() {}

  drawThroughput() {}
}
