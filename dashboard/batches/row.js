// A batch as a row of the table.

import { inferenceUrl } from "../commands.js";
import { element, setAttribute, setText, show } from "../dom.js";
import { ago, count, duration, fullTime, percent, rate } from "../format.js";
import { labelCells } from "../labels.js";
import { CURL_KEY } from "../playground/snippets.js";
import { linkTo } from "../router.js";
import { needsKey } from "../session.js";
import { drawPill } from "../states.js";

const HEADS = [
  ["Batch", "id"],
  ["State", ""],
  ["Caller", "caller"],
  ["Lines", ""],
  ["Lines/s", "number"],
  ["Left", "number"],
  ["Errors", "number"],
  ["Made", ""],
  ["Results", ""],
];
const SHORT_ID = "batch_".length + 8; // characters that are shown; the rest is in the tooltip
const SHADES = { completed: "good", failed: "bad", expired: "bad", in_progress: "streaming", cancelled: "idle" };
const OPEN = new Set(["validating", "in_progress", "finalizing", "cancelling"]);
const WORDS = { in_progress: "running", validating: "checking", finalizing: "finishing" };

/** Whether it has not ended. */
export const isOpen = ({ status }) => OPEN.has(status);

/** `onCancel(id)` is called when its button is pressed. */
export function createBatchRow(batch, onCancel) {
  const parts = {
    state: element("span", "pill"),
    caller: element("a"),
    bar: element("progress"),
    lines: element("span", "note"),
    rate: element("td", "number"),
    left: element("td", "number"),
    errors: element("td", "number"),
    made: element("td"),
    outputs: element("a", "file", "answers"),
    faults: element("a", "file", "errors"),
    cancel: cancelButton(batch.id, onCancel),
  };
  const id = element("td", "id", batch.id.slice(0, SHORT_ID));
  id.title = `${batch.id}, ${batch.endpoint}`;
  parts.caller.href = linkTo("requests", "", { caller: batch.caller });
  setText(parts.caller, batch.caller);
  parts.bar.max = 1;
  parts.bar.setAttribute("aria-label", `Share of ${batch.id} that is done`);
  const caller = element("td", "caller", parts.caller);
  const files = element("td", "files", parts.outputs, " ", parts.faults);
  const row = element("tr", "", id, element("td", "", parts.state), caller);
  row.append(element("td", "lines", parts.bar, parts.lines), parts.rate, parts.left, parts.errors);
  row.append(parts.made, files, element("td", "number", parts.cancel));
  labelCells(row, HEADS);
  row.dataset.testid = "batch";
  row.parts = parts;
  return row;
}

/** `now` in seconds since 1970. */
export function updateBatchRow(row, batch, now) {
  const { parts } = row;
  const numDone = batch.completed + batch.failed;
  const share = batch.total ? numDone / batch.total : 0;
  setAttribute(row, "data-status", batch.status);
  drawPill(parts.state, shadeOf(batch), stateWords(batch));
  if (parts.bar.value !== share) parts.bar.value = share;
  setText(parts.lines, batch.total ? `${count(numDone)} of ${count(batch.total)}, ${percent(share)}` : "–");
  setText(parts.rate, isOpen(batch) ? rate(batch.lines_per_second) : "–");
  setText(parts.left, batch.seconds_left === null ? "–" : duration(batch.seconds_left));
  setText(parts.errors, count(batch.failed));
  setText(parts.made, ago(Math.max(0, now - batch.created_at)));
  setAttribute(parts.made, "title", fullTime(batch.created_at));
  drawFile(parts.outputs, batch.output_file_id);
  drawFile(parts.faults, batch.error_file_id);
  show(parts.cancel, batch.status === "validating" || batch.status === "in_progress");
}

function stateWords({ status, failure }) {
  const words = WORDS[status] ?? status;
  return failure ? `${words}: ${failure}` : words;
}

/** A browser has no key to show to the inference port, so where one is needed this is a command. */
function drawFile(link, id) {
  show(link, id !== null);
  if (id === null) return;
  const url = `${inferenceUrl()}/v1/files/${encodeURIComponent(id)}/content`;
  if (needsKey()) {
    link.removeAttribute("href");
    setAttribute(link, "title", `curl ${CURL_KEY} ${url}`);
  } else {
    setAttribute(link, "href", url);
    setAttribute(link, "title", id);
  }
}

function cancelButton(id, onCancel) {
  const button = element("button", "quiet", "Cancel");
  button.type = "button";
  button.dataset.testid = "cancel";
  button.setAttribute("aria-label", `Cancel ${id}`);
  button.addEventListener("click", () => onCancel(id));
  return button;
}

/** One of which lines failed is not green, and one of which all did is red. */
function shadeOf({ status, completed, failed }) {
  if (status === "completed" && failed) return completed ? "queued" : "bad";
  return SHADES[status] ?? "queued";
}
