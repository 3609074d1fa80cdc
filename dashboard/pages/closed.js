// What is shown in the place of a page that is not for the role of the key that is logged in.

import { byId, setText } from "../dom.js";
import { may, myName, myRole } from "../session.js";

const PAGES = {
  keys: { title: "Access keys", needs: "administer", whose: "Access keys are for admins" },
  playground: { title: "Playground", needs: "call", whose: "The playground is for operators and admins" },
};

/** Whether the page of this name is not for the role of the key that is logged in. */
export const isClosed = (name) => Object.hasOwn(PAGES, name) && !may(PAGES[name].needs);

export class ClosedPage {
  /** `name` is the page that was asked for. */
  open(name) {
    const { title, whose } = PAGES[name];
    setText(byId("closed-title"), title);
    setText(byId("closed-why"), `${whose}; the key ${myName()}, with which you are logged in, has the role ${myRole()}.`);
  }

  draw() {}

  drawThroughput() {}
}
