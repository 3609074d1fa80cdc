// The range of time that the charts of all pages show; it stays when the page is loaded again.

const KEY = "arriero.history-range";

/** What may be chosen: seconds, as `/api/v1/history` takes them, and words. */
export const RANGES = [
  { key: "15m", seconds: 900, words: "15 min" },
  { key: "1h", seconds: 3600, words: "1 h" },
  { key: "24h", seconds: 86400, words: "24 h" },
];

export function chosenRange() {
  return RANGES.find((range) => range.key === read()) ?? RANGES[0];
}

export function chooseRange(key) {
  try {
    localStorage.setItem(KEY, key);
  } catch {
    chosenMeanwhile = key; // storage is refused or full: it holds until the page is left
  }
}

let chosenMeanwhile = null;

function read() {
  try {
    return localStorage.getItem(KEY) ?? chosenMeanwhile;
  } catch {
    return chosenMeanwhile;
  }
}
