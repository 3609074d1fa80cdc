// Two plots with one cursor: tokens per second over requests waiting.

import { byId, element, keyed, setAttribute, setText } from "../dom.js";
import { ago, count, rate } from "../format.js";
import { WINDOW } from "./history.js";
import { Plot } from "./plot.js";

const QUEUE = {
  key: "queue",
  name: "waiting",
  className: "series-queue",
  value: (point) => point.queue,
};
const TOTAL = {
  key: "total",
  name: "total",
  className: "series-total",
  value: (point) => point.total,
};

export class FleetPlots {
  #cursor = null; // the point that the reader points at

  constructor(history) {
    this.history = history;
    const onCursor = (point, isByKey) => this.#move(point, isByKey);
    this.throughput = new Plot(byId("throughput-plot"), {
      seconds: WINDOW,
      minimum: 10,
      hint: element("span", "", "No tokens yet.", element("span", "for-callers", " Ask something in the playground.")),
      onCursor,
    });
    this.queue = new Plot(byId("queue-plot"), {
      seconds: WINDOW,
      minimum: 4,
      hint: "No requests wait.",
      onCursor,
    });
  }

  draw() {
    const { points } = this.history;
    if (!points.includes(this.#cursor)) this.#cursor = null;
    this.throughput.draw(points, this.history.layers());
    this.queue.draw(points, [QUEUE]);
    this.#drawReadOut();
  }

  #move(point, isByKey) {
    this.#cursor = point;
    this.throughput.mark(point);
    this.queue.mark(point);
    this.#drawReadOut();
    if (!isByKey || !point) return;
    const words = `${rate(point.total)} tokens per second, ${count(point.queue)} waiting`;
    setText(byId("plot-status"), `${this.#when(point)}: ${words}`);
  }

  /** The legend is the read-out: values at the cursor, or those of now. */
  #drawReadOut() {
    const point = this.#cursor ?? this.history.points.at(-1);
    if (!point) return;
    setText(byId("plot-time"), this.#cursor ? this.#when(this.#cursor) : "now");
    setText(byId("queue-value"), count(point.queue));
    const layers = this.history.layers();
    keyed(byId("throughput-legend"), layers.length > 1 ? [...layers, TOTAL] : layers, {
      key: (layer) => layer.key,
      create: () => element("li", "", element("span", "swatch"), element("span"), element("b")),
      update: (item, layer) => {
        const [, name, value] = item.children;
        setAttribute(item, "class", layer.className);
        setText(name, layer.name);
        setText(value, rate(layer.value(point)));
      },
    });
  }

  #when(point) {
    return ago(this.history.points.at(-1).at - point.at);
  }
}
