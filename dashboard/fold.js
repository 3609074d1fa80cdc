// On narrow screens a table's rows are cards, and a long table would be many screens long: the style
// shows the first rows of it, and a button the others.

import { element } from "./dom.js";

/** Put the button under each table whose rows become cards. */
export function foldTables() {
  for (const scroll of document.querySelectorAll(".scroll:has(> .cards)")) {
    const button = element("button", "quiet unfold", "Show all");
    button.type = "button";
    button.addEventListener("click", () => {
      scroll.classList.add("unfolded");
      scroll.focus({ preventScroll: true });
    });
    scroll.after(button);
  }
}
