// Numbers of an axis. Pure.

/** To a tenth of a pixel: longer numbers only make paths longer. */
export const round = (value) => Math.round(value * 10) / 10;

/** The next of 1, 2, 4, 5 or 8 times a power of ten: both it and its half are round numbers. */
export function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 8, 10].map((step) => step * power).find((step) => step >= value);
}

const TICKS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600];
const MAX_TICKS = 4;

/** Round times of the reader's clock from `since` to `until`, seconds since 1970; a few of them. */
export function clockTicks(since, until) {
  const tick = TICKS.find((each) => (until - since) / each <= MAX_TICKS) ?? TICKS.at(-1);
  const offset = new Date(since * 1000).getTimezoneOffset() * 60;
  const ticks = [];
  let at = Math.ceil((since - offset) / tick) * tick + offset;
  for (; at <= until; at += tick) ticks.push(at);
  return ticks;
}
