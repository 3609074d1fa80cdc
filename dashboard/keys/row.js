// A key as a row of the table.

import { element, setAttribute, setText, show } from "../dom.js";
import { ago, compact, count, duration, fullTime, plural } from "../format.js";
import { labelCells } from "../labels.js";
import { linkTo } from "../router.js";
import { drawPill } from "../states.js";

const HEADS = [["Name"], ["Role"], ["State"], ["Bound to"], ["Limits"], ["Expires"], ["Last use"], ["Used in 30 days"]];
const LIMITS = {
  requests_per_minute: "requests a minute",
  tokens_per_minute: "tokens a minute",
  max_concurrent: "at once",
  max_queued: "waiting",
  max_tokens: "tokens an answer",
};
const FILE_KEY = "admin-key-file"; // of a file of the balancer's: it cannot be changed here

/** `onAct(action, name)` is called for "rotate" and "revoke". */
export function createKeyRow(key, onAct) {
  const used = element("a");
  used.href = linkTo("requests", "", { state: "ended", caller: key.name });
  const parts = {
    role: element("td"),
    state: element("span", "pill"),
    bound: element("td", "why"),
    limits: element("td", "why"),
    expires: element("td"),
    last: element("td"),
    used,
    rotate: button("rotate", key, onAct),
    revoke: button("revoke", key, onAct),
  };
  const actions = element("td", "number", element("div", "actions", parts.rotate, parts.revoke));
  const { role, state, bound, limits, expires, last } = parts;
  const row = element("tr", "", element("td", "", key.name), role, element("td", "", state), bound);
  row.append(limits, expires, last, element("td", "", used), actions);
  labelCells(row, HEADS);
  row.dataset.testid = "key";
  row.parts = parts;
  return row;
}

/** `now` in seconds since 1970; `usage` is that of the last 30 days, if it is known. */
export function updateKeyRow(row, key, { now, usage }) {
  const { parts } = row;
  const state = stateOf(key);
  setText(parts.role, key.role);
  drawPill(parts.state, state === "valid" ? "good" : "idle", state);
  setText(parts.bound, boundTo(key));
  setText(parts.limits, limitsOf(key));
  drawTime(parts.expires, key.expires_at, expiry(key, now));
  drawTime(parts.last, key.last_used_at, lastUse(key, now));
  setText(parts.used, usage ? usageWords(usage) : "none");
  const isOver = state !== "valid";
  show(parts.rotate, !isOver && key.name !== FILE_KEY);
  show(parts.revoke, !isOver && key.name !== FILE_KEY);
}

/** Valid keys first, then by name. */
export const byUse = (a, b) => b.is_valid - a.is_valid || a.name.localeCompare(b.name);

function stateOf(key) {
  if (key.revoked_at !== null) return "revoked";
  return key.is_valid ? "valid" : "expired";
}

function boundTo({ models, labels }) {
  const pairs = Object.entries(labels ?? {}).map(([name, value]) => `${name}=${value}`);
  return [...(models ?? ["all models"]), ...pairs].join(", ");
}

function limitsOf(key) {
  const limits = Object.entries(LIMITS).filter(([name]) => key[name] !== null);
  const words = limits.map(([name, what]) => `${count(key[name])} ${what}`);
  if (key.priority !== "interactive") words.push(`priority ${key.priority}`);
  if (key.default_priority) words.push(`priority ${key.default_priority} if none is said`);
  return words.join(", ") || "none";
}

function expiry({ expires_at: at }, now) {
  if (at === null) return "never";
  return at > now ? `in ${days(at - now)}` : `${days(now - at)} ago`;
}

function lastUse({ last_used_at: at }, now) {
  if (at === null) return "not seen";
  return now - at < 86400 ? ago(Math.max(0, now - at)) : `${days(now - at)} ago`;
}

const days = (seconds) =>
  seconds < 2 * 86400 ? duration(seconds) : plural(Math.floor(seconds / 86400), "day");

const usageWords = ({ requests, prompt_tokens: read, completion_tokens: written }) =>
  `${plural(requests, "request")}, ${compact(read + written)} tokens`;

function drawTime(cell, at, words) {
  setText(cell, words);
  if (at === null) cell.removeAttribute("title");
  else setAttribute(cell, "title", fullTime(at));
}

function button(action, { name }, onAct) {
  const node = element("button", "quiet", action === "rotate" ? "Rotate" : "Revoke");
  node.type = "button";
  node.dataset.testid = `${action}-key`;
  node.setAttribute("aria-label", `${node.textContent} ${name}`);
  node.addEventListener("click", () => onAct(action, name));
  return node;
}
