// A small plot of one figure's last minutes, without axes: its words say how much it is.

import { setAttribute, svg } from "../dom.js";

const WIDTH = 120;
const HEIGHT = 24;

export class Sparkline {
  constructor() {
    this.line = svg("polyline", { "vector-effect": "non-scaling-stroke" });
    this.node = svg("svg", { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.node.append(this.line);
  }

  /** `points` have `at` in seconds and `value`, which is at most `most`; the last is the newest. */
  draw(points, { seconds, most }) {
    const until = points.at(-1)?.at ?? 0;
    const places = points.map(({ at, value }) => {
      const x = WIDTH * (1 - (until - at) / seconds);
      const y = HEIGHT - 1 - (HEIGHT - 2) * Math.min(1, value / most);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    });
    setAttribute(this.line, "points", places.join(" "));
  }
}
