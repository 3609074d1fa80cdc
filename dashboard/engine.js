// An agent's engine statistics: what the KV cache's cells hold, and how fast it decodes.

import { element, setAttribute, setText, show, svg } from "./dom.js";
import { count, percent, rate } from "./format.js";
import { atOnce } from "./agents/facts.js";
import { term } from "./hints.js";

/** One agent's engine, on its card. */
export class EnginePanel {
  constructor() {
    this.used = svg("rect", { class: "used", height: "100%" });
    this.kept = svg("rect", { class: "kept", height: "100%" });
    this.bar = svg("svg", { class: "cells", role: "img" });
    this.bar.append(this.used, this.kept);
    this.shares = element("span");
    this.cells = element("p", "note", term("KV cache"), this.shares);
    this.rate = element("span");
    this.together = element("span", "", term("at once"));
    this.speed = element("p", "note", this.rate, this.together);
    this.node = element("div", "engine", this.bar, this.cells, this.speed);
    this.bar.dataset.testid = "cells";
    this.cells.dataset.testid = "cells-note";
    this.speed.dataset.testid = "engine-speed";
  }

  /** Draw an agent's statistics, or nothing where there are none. */
  draw({ statistics, models }) {
    show(this.node, statistics !== null);
    if (statistics === null) return;
    this.#drawCells(statistics.cells);
    setText(this.rate, speed(statistics, models));
    show(this.together, statistics.decode_tokens_per_second !== null);
  }

  #drawCells({ total, used, kept, parked }) {
    this.bar.toggleAttribute("hidden", total === 0); // another server's are unknown
    show(this.cells, total > 0);
    const share = (value) => (total ? value / total : 0);
    setAttribute(this.used, "width", `${share(used) * 100}%`);
    setAttribute(this.kept, "x", `${share(used) * 100}%`);
    setAttribute(this.kept, "width", `${share(kept) * 100}%`);
    const words = ` ${percent(share(used))} used · ${percent(share(kept))} cached`;
    setText(this.shares, words);
    const numbers =
      `${count(used)} used and ${count(kept)} cached of ${count(total)} cells, ` +
      `${count(parked)} more parked in host memory`;
    setAttribute(this.shares, "title", numbers);
    setAttribute(this.bar, "aria-label", `KV cache${words}`);
  }
}

/** The share of all prompts' tokens that were found in the cache; null before there were any. */
export function cachedShare(agents) {
  const all = agents.flatMap((agent) => agent.statistics ?? []);
  const sum = (name) => all.reduce((total, each) => total + each[name], 0);
  const cached = sum("cached_tokens_total");
  const tokens = cached + sum("computed_tokens_total");
  return tokens ? cached / tokens : null;
}

function speed(statistics, models) {
  const { decode_tokens_per_second: decode } = statistics;
  if (decode === null) return "nothing decoded yet";
  return `decodes ${rate(decode)} tokens/s · ${atOnce(statistics, models)} `;
}
