// A key that was just made or rotated: on the page until the reader has copied it, and nowhere else.

import { byId, copies, setText, show } from "../dom.js";

/** Wire the card; the secret is gone when the reader says so, or turns to another page. */
export function startSecret() {
  copies(byId("copy-key"), byId("new-key-secret"));
  byId("forget-key").addEventListener("click", forgetSecret);
  addEventListener("hashchange", forgetSecret);
}

/** Show the secret of the key `name`. */
export function showSecret(name, secret) {
  setText(byId("new-key-name"), name);
  setText(byId("new-key-secret"), secret);
  show(byId("new-key"), true);
  byId("copy-key").focus();
}

function forgetSecret() {
  setText(byId("new-key-secret"), "");
  show(byId("new-key"), false);
}
