// Asks before something that cannot be undone.

import { byId, setText } from "../dom.js";

/** Resolves to whether the reader confirms it; `act` is the word on the button. */
export function confirmed({ title, text, act }) {
  const dialog = byId("confirm");
  setText(byId("confirm-title"), title);
  setText(byId("confirm-text"), text);
  setText(byId("confirm-yes"), act);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
