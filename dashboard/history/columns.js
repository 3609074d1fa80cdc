// What the charts show of an answer of `/api/v1/history`: layers, and words about them. Pure.

import { count, milliseconds, plural, rate } from "../format.js";

const GOOD = new Set(["stop", "length", "tool_calls", "answered"]);
const CALM = new Set(["cancelled", "client_gone"]);
const SHARES = [
  ["p50", "half within", "series-5"],
  ["p90", "9 of 10 within", "series-1"],
  ["p99", "99 of 100 within", "series-0"],
];
const NUM_COLOURS = 8;

/** The line's columns, or none where the answer has no line. */
const columns = (answer) => answer.lines[0] ?? null;

const sum = (values) => values.reduce((total, value) => total + value, 0);

function percentiles(name) {
  return (answer) => {
    const line = columns(answer);
    return SHARES.map(([share, title, className]) => ({
      key: share,
      name: share,
      title,
      className,
      shape: "line",
      values: line ? line[name][share] : answer.times.map(() => null),
    }));
  };
}

function tokens(answer) {
  const values = columns(answer)?.tokens_per_second ?? answer.times.map(() => null);
  return [{ key: "tokens", name: "generated", className: "series-2", shape: "area", values }];
}

function failures(answer) {
  const codes = Object.entries(columns(answer)?.ended ?? {});
  return codes
    .filter(([code]) => !GOOD.has(code) && !CALM.has(code))
    .map(([code, values]) => ({ key: code, name: code, shape: "bar", values }))
    .sort((a, b) => sum(b.values) - sum(a.values) || (a.key < b.key ? -1 : 1))
    .map((layer, index) => ({
      ...layer,
      className: `series-${index < NUM_COLOURS ? index : "others"}`,
    }));
}

/** The note under the plot of errors: how many of the requests in the range failed. */
function failureNote(answer) {
  const totals = Object.entries(columns(answer)?.ended ?? {}).map(([code, all]) => [code, sum(all)]);
  const of = (isMeant) => sum(totals.filter(([code]) => isMeant(code)).map(([, total]) => total));
  const all = of(() => true);
  if (all === 0) return "no requests";
  const calm = of((code) => CALM.has(code));
  const words = [`${count(of((code) => !GOOD.has(code) && !CALM.has(code)))} of ${plural(all, "request")}`];
  if (calm) words.push(`${count(calm)} cancelled`);
  return words.join(", ");
}

function averageNote(answer) {
  const { times, step } = answer;
  const values = columns(answer)?.tokens_per_second ?? [];
  return times.length && step ? `${rate(sum(values) / times.length)} on average` : "";
}

const lastKnown = (values) => values.findLast((value) => value !== null) ?? null;

/**
 * The charts. `value(layer)` stands in the legend while the reader points at nothing; `note(answer)`
 * beside the title.
 */
export const CHARTS = [
  {
    key: "tokens",
    title: "Tokens per second",
    hint: "No tokens in this time.",
    minimum: 10,
    words: rate,
    layers: tokens,
    note: averageNote,
    value: ({ values }) => lastKnown(values),
  },
  {
    key: "errors",
    title: "Errors",
    hint: "No errors in this time.",
    minimum: 2,
    words: count,
    layers: failures,
    note: failureNote,
    value: ({ values }) => sum(values),
  },
  {
    key: "first-token",
    title: "Time to the first token",
    hint: "No first token in this time.",
    minimum: 10,
    words: milliseconds,
    layers: percentiles("first_token_ms"),
    note: () => "",
    value: ({ values }) => lastKnown(values),
  },
  {
    key: "between-tokens",
    title: "Time between tokens",
    hint: "No answers of several tokens in this time.",
    minimum: 10,
    words: milliseconds,
    layers: percentiles("between_tokens_ms"),
    note: () => "",
    value: ({ values }) => lastKnown(values),
  },
];

/** What is missing of the range, in words; empty if nothing is. */
export function gapWords(answer, asClock) {
  const { times, since, step } = answer;
  if (times.length === 0) return "Nothing has been recorded for this time yet.";
  if (times[0] > since + 2 * step) return `Recorded since ${asClock(times[0])}.`;
  const gap = times.findIndex((at, index) => index > 0 && at - times[index - 1] > step);
  return gap === -1 ? "" : `Nothing is recorded from ${asClock(times[gap - 1] + step)} to ${asClock(times[gap])}.`;
}
