// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => whole.format(value);

/** 2300000 as "2.3M". */
export const compact = (value) => short.format(value);

/** A rate: one decimal below ten, none above. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 9.95 ? value.toFixed(1) : whole.format(Math.round(value));
}

/** A share of one as "42%"; what is not nothing is at least "<1%". */
export function percent(share) {
  return share > 0 && share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`;
}

/** Degrees Celsius as "61 °C". */
export const degrees = (value) => `${Math.round(value)} °C`;

/** Seconds as "3.2 s", "4 min 10 s" or "2 h 5 min". */
export function duration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** How long ago, in whole seconds: "now", "8 s ago". */
export function ago(seconds) {
  const whole = Math.round(seconds);
  if (whole === 0) return "now";
  return whole < 10 ? `${whole} s ago` : `${duration(whole)} ago`;
}

const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Milliseconds as "0.4 ms", "85 ms" or "1.24 s"; what is not nothing is at least "<0.1 ms". */
export function milliseconds(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  if (value > 0 && value < 0.05) return "<0.1 ms";
  return `${value < 10 ? tenths.format(value) : Math.round(value)} ms`;
}

export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Bytes as "3.4 GiB". */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  const scaled = value / 1024 ** power;
  return `${power && scaled < 99.5 ? scaled.toFixed(1) : Math.round(scaled)} ${units[power]}`;
}

/** Seconds since 1970 in the reader's zone, as `parts` say; all times of the page have 24 hours. */
function timeFormat(parts) {
  const format = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...parts });
  return (at) => format.format(at * 1000);
}

const day = { day: "numeric", month: "short" };

/** "14:05". */
export const clock = timeFormat({});

/** "14:05:09". */
export const timeOfDay = timeFormat({ second: "2-digit" });

/** "31 Jan, 14:05:09", for lists of what is recent. */
export const dateAndTime = timeFormat({ ...day, second: "2-digit" });

/** "31 Jan 2026, 14:05:09". */
export const fullTime = timeFormat({ ...day, year: "numeric", second: "2-digit" });
