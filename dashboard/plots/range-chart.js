// Columns over a fixed range of time: areas, lines or stacked bars, drawn as SVG paths.

import { keyed, setAttribute, setText, show, svg } from "../dom.js";
import { clock } from "../format.js";
import { clockTicks, niceCeiling, round } from "./scale.js";

const TOP = 14; // room for the highest label, in pixels
const BOTTOM = 18; // room for the time axis
const LABEL_MARGIN = 22; // pixels that half a label of time takes
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
const NOTHING = { times: [], step: 1, since: 0, until: 1, layers: [] };

export class RangeChart {
  #data = NOTHING;
  #cursor = null; // the index of the time that the reader points at

  /**
   * `minimum` is the least height of the scale, `words(value)` writes its labels, `hint` stands there
   * while there is nothing to see; `onCursor(index | null, isByKey)` says what the reader points at.
   */
  constructor(root, { minimum, words, hint, onCursor }) {
    Object.assign(this, { root, minimum, words, onCursor });
    this.grid = svg("svg", { class: "plot-grid", "aria-hidden": "true" });
    this.data = svg("svg", { class: "plot-data", "aria-hidden": "true" });
    this.shapes = svg("g");
    this.rule = svg("line", { class: "plot-rule", visibility: "hidden", y1: TOP });
    this.labels = svg("svg", { class: "plot-labels", "aria-hidden": "true" });
    this.hint = document.createElement("p");
    this.hint.className = "plot-hint";
    this.hint.textContent = hint;
    this.data.append(this.shapes, this.rule);
    root.append(this.grid, this.data, this.labels, this.hint);
    new ResizeObserver(() => this.#render()).observe(root);
    root.addEventListener("pointermove", (event) => this.#point(event));
    root.addEventListener("pointerleave", () => this.onCursor(null, false));
    root.addEventListener("blur", () => this.onCursor(null, false));
    root.addEventListener("keydown", (event) => this.#step(event));
  }

  /**
   * Show `layers`, each `{key, className, shape, values}` with one value, or null, for each of `times`:
   * the beginnings of steps of `step` seconds, from `since` to `until`. Bars are stacked.
   */
  draw(data) {
    this.#data = data;
    this.#render();
  }

  /** Mark one of the times, or none. */
  mark(index) {
    this.#cursor = index;
    const isShown = index !== null && index < this.#data.times.length;
    setAttribute(this.rule, "visibility", isShown ? "visible" : "hidden");
    if (!isShown) return;
    const x = String(round(this.#middle(index)));
    setAttribute(this.rule, "x1", x);
    setAttribute(this.rule, "x2", x);
    setAttribute(this.rule, "y2", String(this.#y(0)));
  }

  #render() {
    this.width = this.root.clientWidth;
    this.height = this.root.clientHeight;
    if (this.width === 0) return;
    const highest = this.#highest();
    this.scale = niceCeiling(Math.max(highest, this.minimum));
    const hasAnything = this.#data.layers.some(({ values }) => values.some((value) => value));
    show(this.hint, !hasAnything);
    this.#renderGrid();
    keyed(this.shapes, this.#shapes(), {
      key: (shape) => shape.key,
      create: () => svg("path", { "data-testid": "chart-shape" }),
      update: (node, shape) => {
        setAttribute(node, "class", `chart-${shape.shape} ${shape.className}`);
        setAttribute(node, "d", shape.path);
      },
    });
    this.mark(this.#cursor);
  }

  #renderGrid() {
    const values = [0, this.scale / 2, this.scale];
    keyed(this.grid, values, {
      key: (value) => value,
      create: () => svg("line", { x1: 0 }),
      update: (line, value) => {
        setAttribute(line, "x2", String(this.width));
        setAttribute(line, "y1", String(this.#y(value)));
        setAttribute(line, "y2", String(this.#y(value)));
      },
    });
    keyed(this.labels, [...values.slice(1).map((value) => this.#valueLabel(value)), ...this.#times()], {
      key: (label) => label.key,
      create: (label) => svg("text", { "text-anchor": label.anchor }),
      update: (text, label) => {
        setText(text, label.text);
        setAttribute(text, "x", String(round(label.x)));
        setAttribute(text, "y", String(round(label.y)));
      },
    });
  }

  #valueLabel(value) {
    const y = this.#y(value) - 4;
    return { key: `value ${value}`, text: this.words(value), anchor: "start", x: 2, y };
  }

  #times() {
    const { since, until } = this.#data;
    const y = this.height - 3;
    return clockTicks(since, until)
      .map((at) => ({ key: `time ${at}`, text: clock(at), anchor: "middle", x: this.#x(at), y }))
      .filter(({ x }) => x > LABEL_MARGIN && x < this.width - LABEL_MARGIN);
  }

  #shapes() {
    const floor = this.#data.times.map(() => 0);
    return this.#data.layers.map((layer) => {
      if (layer.shape === "bar") return { ...layer, path: this.#bars(layer.values, floor) };
      const isArea = layer.shape === "area";
      const path = this.#runs(layer.values).map((run) => this.#line(run, layer.values, isArea));
      return { ...layer, path: path.join("") };
    });
  }

  /** A bar for each value on top of what is below it; `floor` grows by them. */
  #bars(values, floor) {
    const { times, step } = this.#data;
    const width = Math.max(1.5, this.#x(step) - this.#x(0) - 0.5);
    return values
      .map((value, index) => {
        if (!value) return "";
        const [bottom, top] = [this.#y(floor[index]), this.#y(floor[index] + value)];
        floor[index] += value;
        return `M${round(this.#x(times[index]))},${round(bottom)}h${round(width)}V${round(top)}h${round(-width)}Z`;
      })
      .join("");
  }

  /** A line through a run of times; a single one is a dot as long as its step. */
  #line(run, values, isArea) {
    const { times, step } = this.#data;
    const points = run.map((index) => `${round(this.#middle(index))},${round(this.#y(values[index]))}`);
    if (run.length === 1) {
      const [left, right] = [this.#x(times[run[0]]), this.#x(times[run[0]] + step)];
      const y = round(this.#y(values[run[0]]));
      points.splice(0, 1, `${round(left)},${y}`, `${round(right)},${y}`);
    }
    if (!isArea) return `M${points.join("L")}`;
    const [first, last] = [points[0].split(",")[0], points.at(-1).split(",")[0]];
    return `M${first},${this.#y(0)}L${points.join("L")}L${last},${this.#y(0)}Z`;
  }

  /** Indices of known values without a gap between them, run by run. */
  #runs(values) {
    const { times, step } = this.#data;
    const runs = [];
    let last = null;
    for (const [index, value] of values.entries()) {
      if (value === null) continue;
      const isNext = last === index - 1 && times[index] - times[last] <= step;
      if (!isNext) runs.push([]);
      runs.at(-1).push(index);
      last = index;
    }
    return runs;
  }

  #highest() {
    const { layers, times } = this.#data;
    const bars = layers.filter((layer) => layer.shape === "bar");
    const sums = times.map((_, index) => bars.reduce((sum, { values }) => sum + values[index], 0));
    const others = layers.filter((layer) => layer.shape !== "bar").flatMap(({ values }) => values);
    return [...sums, ...others].reduce((most, value) => Math.max(most, value ?? 0), 0);
  }

  #x(at) {
    const { since, until } = this.#data;
    return (this.width * (at - since)) / (until - since);
  }

  #middle(index) {
    return this.#x(this.#data.times[index] + this.#data.step / 2);
  }

  #y(value) {
    return TOP + (this.height - TOP - BOTTOM) * (1 - value / this.scale);
  }

  #point(event) {
    const x = event.clientX - this.root.getBoundingClientRect().left;
    const distances = this.#data.times.map((_, index) => Math.abs(this.#middle(index) - x));
    const nearest = distances.indexOf(Math.min(...distances));
    this.onCursor(nearest === -1 ? null : nearest, false);
  }

  #step(event) {
    if (event.key === "Escape") this.onCursor(null, true);
    const step = KEYS[event.key];
    const last = this.#data.times.length - 1;
    if (step === undefined || last < 0) return;
    event.preventDefault();
    this.onCursor(Math.min(last, Math.max(0, (this.#cursor ?? last) + step)), true);
  }
}
