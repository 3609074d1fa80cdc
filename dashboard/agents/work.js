// How far an agent is with fetching and loading its model.

import { element, setText, show } from "../dom.js";
import { bytes, duration, percent } from "../format.js";

const PHASES = {
  waiting: "waits",
  fetching: "fetches",
  draining: "drains",
  loading: "loads",
};

export class WorkPanel {
  constructor() {
    this.words = element("p", "note");
    this.bar = element("progress");
    this.bar.max = 1;
    this.bar.setAttribute("aria-label", "Share that is done");
    this.node = element("div", "work", this.words, this.bar);
    this.node.dataset.testid = "work";
    this.node.hidden = true;
  }

  /** Draw what `agent` is doing, or nothing once it is done. */
  draw({ work = null, download = null }) {
    const isBusy = download !== null || (work !== null && work.phase in PHASES);
    show(this.node, isBusy);
    if (!isBusy) return;
    const share = download?.total ? download.bytes / download.total : (work?.progress ?? null);
    if (share === null) this.bar.removeAttribute("value");
    else this.bar.value = share;
    setText(this.words, download ? downloadWords(download) : workWords(work));
  }
}

function workWords({ phase, progress, model }) {
  const share = progress === null || progress === undefined ? "" : ` · ${percent(progress)}`;
  return `${PHASES[phase]} ${model}${share}`;
}

/** A download in a line: how much of it, how fast, how long still. */
export function downloadWords(download) {
  const { file, total, bytes_per_second: speed, seconds_left: left } = download;
  const amount = total ? `${bytes(download.bytes)} of ${bytes(total)}` : bytes(download.bytes);
  const words = [`fetches ${file.split("/").at(-1)}`, amount];
  if (speed) words.push(`${bytes(speed)}/s`);
  if (left !== null && left !== undefined) words.push(`${duration(left)} left`);
  return words.join(" · ");
}
