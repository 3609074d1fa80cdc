// One answer from POST /api/v1/generate.

import { sessionHeaders } from "../management.js";
import { jsonLines } from "./ndjson.js";

/** Why an answer did not come, or is not whole; `code` is the balancer's. */
export class AnswerError extends Error {
  constructor({ code, message }) {
    super(message);
    this.code = code;
  }
}

/**
 * Ask for `body` and call `onEvent` for each event. Resolves to the event `done`. Throws
 * `AnswerError`, or the abort's own error when `signal` says stop.
 */
export async function generate(body, { signal, onEvent }) {
  try {
    const response = await fetch("api/v1/generate", {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        Accept: "application/x-ndjson",
        Prefer: "wait=1", // begin, and say that it waits, after a second
        ...sessionHeaders(),
      },
      body: JSON.stringify(body),
      signal,
    });
    if (!response.ok) throw await refusal(response);
    return await readToEnd(response, onEvent);
  } catch (error) {
    if (error instanceof AnswerError || error.name === "AbortError") throw error;
    throw new AnswerError({ code: "disconnected", message: "The balancer cannot be reached." });
  }
}

async function readToEnd(response, onEvent) {
  for await (const events of jsonLines(response.body)) {
    for (const event of events) {
      if (event.event === "done") return event;
      if (event.event === "error") throw new AnswerError(event.error);
      onEvent(event);
    }
  }
  throw new AnswerError({ code: "disconnected", message: "The answer broke off before its end." });
}

async function refusal(response) {
  const { error } = await response.json().catch(() => ({}));
  const unreadable = { code: `HTTP ${response.status}`, message: response.statusText };
  return new AnswerError(error ?? unreadable);
}
