// A stacked area over the last minutes, drawn as SVG paths so that style.css has the colours.

import { element, keyed, setAttribute, setText, svg } from "../dom.js";
import { count } from "../format.js";
import { niceCeiling, round } from "./scale.js";

const LEAST_SPAN = 60; // seconds; the picture grows from here as time goes by
const LABEL_STEPS = [15, 30, 60, 120, 300]; // seconds between two labels of the time axis
const MAX_LABELS = 4;
const LONGEST_SLIDE = 2; // seconds; after a longer silence the picture jumps
const TOP = 14; // room for the highest label, in pixels
const BOTTOM = 18; // room for the time axis

export class Plot {
  #points = [];
  #layers = [];
  #cursor = null;
  #pointer = null; // where the pointer is, from the left, in pixels
  #slide = null;

  /**
   * `seconds` is the greatest width in time, `minimum` the least height of the scale, `hint` the text
   * or element that stands there while all is zero; `onCursor(point | null, isByKey)` says what the
   * reader points at.
   */
  constructor(root, { seconds, minimum, hint, onCursor }) {
    this.root = root;
    this.seconds = seconds;
    this.minimum = minimum;
    this.onCursor = onCursor;
    this.grid = svg("svg", { class: "plot-grid", "aria-hidden": "true" });
    this.data = svg("svg", { class: "plot-data", "aria-hidden": "true" });
    this.areas = svg("g");
    this.line = svg("path", { class: "plot-line", "data-testid": "plot-line" });
    this.rule = svg("line", { class: "plot-rule", visibility: "hidden" });
    this.dot = svg("circle", { class: "plot-dot", r: 4, visibility: "hidden" });
    this.labels = svg("svg", { class: "plot-labels", "aria-hidden": "true" });
    this.hint = element("p", "plot-hint", hint);
    this.data.append(this.areas, this.line, this.rule, this.dot);
    root.append(this.grid, this.data, this.labels, this.hint);
    new ResizeObserver(() => this.#render()).observe(root);
    root.addEventListener("pointermove", (event) => {
      this.#pointer = event.clientX - root.getBoundingClientRect().left;
      this.onCursor(this.#nearest(), false);
    });
    root.addEventListener("pointerleave", () => this.#leave());
    root.addEventListener("blur", () => this.#leave());
    root.addEventListener("keydown", (event) => this.#step(event));
  }

  /** Show `points` (oldest first, each with `at` in seconds), as `layers` from the bottom up. */
  draw(points, layers) {
    const before = this.#points.at(-1)?.at;
    const now = points.at(-1)?.at;
    this.#points = [...points];
    this.#layers = layers;
    this.#render();
    if (before !== undefined && now > before) this.#slideIn(now - before);
    if (this.#pointer !== null) this.onCursor(this.#nearest(), false);
  }

  /** Mark one point, or none. */
  mark(point) {
    this.#cursor = point;
    const isShown = point !== null && this.#points.includes(point) ? "visible" : "hidden";
    setAttribute(this.rule, "visibility", isShown);
    setAttribute(this.dot, "visibility", isShown);
    if (isShown === "hidden") return;
    const x = this.#x(point);
    const y = this.#y(this.#sum(point));
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: TOP, y2: this.#y(0) })) {
      this.rule.setAttribute(name, value);
    }
    this.dot.setAttribute("cx", x);
    this.dot.setAttribute("cy", y);
  }

  #render() {
    this.width = this.root.clientWidth;
    this.height = this.root.clientHeight;
    if (this.width === 0) return;
    const highest = Math.max(0, ...this.#points.map((point) => this.#sum(point)));
    this.scale = niceCeiling(Math.max(highest, this.minimum));
    this.span = Math.min(this.seconds, Math.max(LEAST_SPAN, this.#age(this.#points[0])));
    this.hint.hidden = highest > 0;
    this.#renderGrid();
    this.#renderAreas();
    this.mark(this.#cursor);
  }

  #renderGrid() {
    const values = [0, this.scale / 2, this.scale].filter(Number.isInteger);
    keyed(this.grid, values, {
      key: (value) => value,
      create: () => svg("line", { x1: 0 }),
      update: (line, value) => {
        setAttribute(line, "x2", String(this.width));
        setAttribute(line, "y1", String(this.#y(value)));
        setAttribute(line, "y2", String(this.#y(value)));
      },
    });
    const labels = values.filter((value) => value > 0).map((value) => this.#valueLabel(value));
    keyed(this.labels, [...labels, ...this.#timeLabels()], {
      key: (label) => `${label.anchor}${label.text}`,
      create: (label) => svg("text", { "text-anchor": label.anchor }),
      update: (text, label) => {
        setText(text, label.text);
        setAttribute(text, "x", String(label.x));
        setAttribute(text, "y", String(label.y));
      },
    });
  }

  #valueLabel(value) {
    return { text: count(value), anchor: "start", x: 2, y: this.#y(value) - 4 };
  }

  #timeLabels() {
    const y = this.height - 3;
    const labels = [{ text: "now", anchor: "end", x: this.width - 2, y }];
    const step = LABEL_STEPS.find((each) => this.span / each <= MAX_LABELS);
    for (let age = step; age < this.span - step / 3; age += step) {
      const x = this.width * (1 - age / this.span);
      const text = age % 60 ? `${age} s ago` : `${age / 60} min ago`;
      labels.push({ text, anchor: "middle", x, y });
    }
    return labels;
  }

  #renderAreas() {
    const floor = new Map(this.#points.map((point) => [point, 0]));
    const shapes = this.#layers.map((layer) => {
      const ceiling = new Map(
        this.#points.map((point) => [point, floor.get(point) + layer.value(point)]),
      );
      const path = this.#runs().map((run) => this.#area(run, floor, ceiling)).join("");
      for (const [point, value] of ceiling) floor.set(point, value);
      return { ...layer, path };
    });
    keyed(this.areas, shapes, {
      key: (shape) => shape.key,
      create: () => svg("path", { "data-testid": "plot-area" }),
      update: (node, shape) => {
        setAttribute(node, "class", `plot-area ${shape.className}`);
        setAttribute(node, "d", shape.path);
      },
    });
    const top = this.#runs().map((run) => `M${this.#curve(run, floor)}`);
    setAttribute(this.line, "d", top.join(""));
  }

  /** The points without a gap between them, run by run. */
  #runs() {
    const runs = [];
    for (const point of this.#points) {
      if (runs.length === 0 || point.isAfterGap) runs.push([]);
      runs.at(-1).push(point);
    }
    return runs.filter((run) => run.length > 1);
  }

  #area(run, floor, ceiling) {
    return `M${this.#curve(run, ceiling)}L${this.#curve([...run].reverse(), floor)}Z`;
  }

  /** A curve that is level at each point, so that it never passes above or below them. */
  #curve(run, values) {
    let path = "";
    let lastX = 0;
    let lastY = 0;
    for (const [index, point] of run.entries()) {
      const x = round(this.#x(point));
      const y = round(this.#y(values.get(point)));
      const middle = round((lastX + x) / 2);
      path += index === 0 ? `${x},${y}` : `C${middle},${lastY} ${middle},${y} ${x},${y}`;
      [lastX, lastY] = [x, y];
    }
    return path;
  }

  #x(point) {
    return this.width * (1 - this.#age(point) / this.span);
  }

  #age(point) {
    return point ? this.#points.at(-1).at - point.at : 0;
  }

  #y(value) {
    return TOP + (this.height - TOP - BOTTOM) * (1 - value / this.scale);
  }

  #sum(point) {
    return this.#layers.reduce((sum, layer) => sum + layer.value(point), 0);
  }

  #slideIn(seconds) {
    this.#slide?.cancel();
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (isStill || document.hidden || this.width === 0 || seconds > LONGEST_SLIDE) return;
    const distance = (this.width * seconds) / this.span;
    this.#slide = this.data.animate(
      [{ transform: `translateX(${distance}px)` }, { transform: "none" }],
      { duration: seconds * 1000, easing: "linear" },
    );
  }

  #nearest() {
    const distance = (point) => Math.abs(this.#x(point) - this.#pointer);
    return this.#points.reduce(
      (best, point) => (best === null || distance(point) < distance(best) ? point : best),
      null,
    );
  }

  #leave() {
    this.#pointer = null;
    this.onCursor(null, false);
  }

  #step(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    const step = steps[event.key];
    if (event.key === "Escape") this.onCursor(null, true);
    if (step === undefined || this.#points.length === 0) return;
    event.preventDefault();
    const last = this.#points.length - 1;
    const index = this.#cursor === null ? last : this.#points.indexOf(this.#cursor);
    this.onCursor(this.#points[Math.min(last, Math.max(0, index + step))], true);
  }
}
