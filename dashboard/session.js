// The login: the form, the button to log out, and what the role may do. Where a proxy in front adds
// a key to each call, there is nothing to log in to; to log out is to end the proxy's own session, if
// it says where.

import { byId, setAttribute, setText, show } from "./dom.js";
import { REDIRECTED, call, get, path, showWithCalls } from "./management.js";

const MAY = {
  viewer: [],
  operator: ["call", "operate"],
  admin: ["call", "operate", "administer"],
};
const ALL = MAY.admin;

let role = null; // null while no login is needed, or the balancer has not said yet
let isKeyNeeded = false;
let name = null;
let signOut = null; // where people end the session of the proxy in front
let isChanging = false;
let numEntered = 0;
let isKnown = false; // the balancer has said who is logged in, since this page was loaded

/** The name of the key that somebody is logged in with. */
export const myName = () => name;

/** The role of that key; null while no login is needed. */
export const myRole = () => role;

/** Whether calls of the balancer need an access key. */
export const needsKey = () => isKeyNeeded;

/** Whether the key that is logged in may "call" models, "operate" or "administer". */
export const may = (what) => role === null || (MAY[role] ?? []).includes(what);

/** Ask which key is logged in. Resolves to false where a login is needed first; shows the form then. */
export async function beginSession() {
  byId("log-in-form").addEventListener("submit", logIn);
  byId("log-out").addEventListener("click", logOut);
  const { session, refusal } = await ask();
  return isOfBalancer(refusal) ? refuse(refusal) : takeUp(session);
}

/** Ask again, since the balancer may be another one, or the key may have ended. */
export async function checkSession() {
  const numBefore = numEntered;
  const { session, refusal } = await ask();
  if (isChanging || numEntered !== numBefore) return; // it is about the session before
  // What is on the page is not for the next one who logs in.
  const isOver = isOfBalancer(refusal) || (session?.needs_key && session.role === null);
  if (isOver || (isKnown && isOfProxy(session, refusal))) location.reload();
  else takeUp(session);
}

async function ask() {
  try {
    return { session: await get("api/v1/session"), refusal: null };
  } catch (refusal) {
    return { session: null, refusal };
  }
}

/** Whether the balancer refused what a proxy adds to the calls of this page. */
const isOfBalancer = (refusal) => ["unauthorized", "forbidden", "invalid_request"].includes(refusal?.code);

/** Whether a proxy answered in its place: it wants a login of its own, which the page itself gets. */
function isOfProxy(session, refusal) {
  return refusal === null ? session === null : refusal.code === REDIRECTED || refusal.status === 401;
}

/** Nothing that somebody enters here would help. */
function refuse({ message }) {
  document.body.classList.add("logged-out");
  for (const id of ["log-in-form", "log-in-note"]) show(byId(id), false);
  show(byId("log-in"), true);
  setText(byId("log-in-title"), "No access");
  setText(byId("log-in-problem"), `What is added to your calls on their way here is refused: ${message}`);
  return false;
}

function takeUp(session) {
  if (session === null) return true; // there is no answer; the page says so, and asks again
  isKnown = true;
  role = session.role;
  isKeyNeeded = session.needs_key;
  name = session.name;
  signOut = session.sign_out;
  showWithCalls(session.csrf === null ? {} : { "x-arriero-csrf": session.csrf });
  const isOut = session.needs_key && role === null;
  document.body.classList.toggle("logged-out", isOut);
  for (const what of ALL) document.body.classList.toggle(`may-not-${what}`, !may(what));
  show(byId("log-in"), isOut);
  show(byId("who"), role !== null || signOut !== null);
  show(byId("log-out"), session.csrf !== null);
  show(byId("sign-out"), session.csrf === null && signOut !== null);
  setAttribute(byId("sign-out"), "href", signOut ?? "");
  show(byId("who-name"), role !== null);
  if (role !== null) setText(byId("who-name"), `${session.name}, ${role}`);
  if (isOut) byId("access-key").focus();
  return !isOut;
}

/**
 * Log in with the key that `make()` resolves to, and stay on the page: meanwhile that the session
 * before has ended does not load the page anew, which would lose the key.
 */
export async function enterWith(make) {
  isChanging = true;
  try {
    const key = await make();
    takeUp((await call("POST", path("session"), { body: { key } })).body);
    numEntered += 1;
  } finally {
    isChanging = false;
  }
}

async function logIn(event) {
  event.preventDefault();
  const key = byId("access-key").value.trim();
  await change("POST", { body: { key } }, null);
}

async function logOut() {
  await change("DELETE", {}, signOut);
}

/** Then go to `place`, or load the page anew. */
async function change(method, options, place) {
  setText(byId("log-in-problem"), "");
  isChanging = true;
  try {
    await call(method, path("session"), options);
    if (place === null) location.reload();
    else location.assign(place);
  } catch (refused) {
    isChanging = false;
    setText(byId("log-in-problem"), refused.message);
    byId("access-key").select();
  }
}
