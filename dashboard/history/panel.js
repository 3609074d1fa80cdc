// The past of the fleet, of a model or of an agent: tokens per second, errors and latencies over a
// chosen range.

import { element, keyed, setAttribute, setText, show } from "../dom.js";
import { clock } from "../format.js";
import { get } from "../management.js";
import { RangeChart } from "../plots/range-chart.js";
import { CHARTS, gapWords } from "./columns.js";
import { RANGES, chooseRange, chosenRange } from "./range.js";

const SHORTEST_PAUSE = 5000; // milliseconds between two readings
const FAILED = "The history cannot be read";

export class HistoryPanel {
  #subject = {}; // `by` and `name`, or nothing for the fleet
  #asked = 0; // numbers the readings: only the answer to the last one is shown
  #readAt = -Infinity;
  #isReading = false;
  #answer = null;
  #cursor = null;

  /** Draws itself into `root`; `about` ends the headings, for screen readers. */
  constructor(root, about) {
    this.note = element("p", "note");
    this.note.setAttribute("role", "status");
    this.spoken = element("p", "hidden");
    this.spoken.setAttribute("role", "status");
    this.buttons = rangeButtons((key) => this.#choose(key));
    this.charts = CHARTS.map((chart) => this.#createChart(chart, about));
    const head = element("div", "card-head", element("h3", "", "History"), this.buttons);
    const grid = element("div", "charts", ...this.charts.map(({ node }) => node));
    root.append(head, this.note, grid, this.spoken);
    root.dataset.testid = "history";
    this.note.dataset.testid = "history-note";
  }

  /** Show what `by` ("model" or "agent") with this `name` did; without them, the fleet. */
  open(subject = {}) {
    const isSame = JSON.stringify(subject) === JSON.stringify(this.#subject);
    this.#subject = subject;
    if (!isSame || this.#answer === null) this.#clear();
    this.#drawButtons();
    this.#read();
  }

  /** Once a second while it is on the screen: reads again when a new step has come. */
  tick() {
    const pause = Math.max(SHORTEST_PAUSE, (this.#answer?.step ?? 0) * 1000);
    const isDue = performance.now() - this.#readAt >= pause;
    if (isDue && !this.#isReading && !document.hidden) this.#read();
  }

  #choose(key) {
    chooseRange(key);
    this.#drawButtons();
    this.#read();
  }

  async #read() {
    const number = (this.#asked += 1);
    const range = chosenRange();
    this.#readAt = performance.now();
    this.#isReading = true;
    try {
      const query = new URLSearchParams({ since: range.key, ...this.#subject });
      const answer = await get(`api/v1/history?${query}`);
      if (number === this.#asked) this.#show({ ...answer, until: answer.since + range.seconds });
    } catch (error) {
      if (number === this.#asked) this.#fail(error);
    }
    if (number === this.#asked) this.#isReading = false;
  }

  #clear() {
    this.#cursor = null;
    this.#answer = null;
    const now = Math.floor(Date.now() / 1000);
    const empty = { times: [], lines: [], step: 1, since: now - chosenRange().seconds, until: now };
    this.#draw(empty);
    setText(this.note, "Reading…");
  }

  #show(answer) {
    if (this.#answer?.times[this.#cursor] !== answer.times[this.#cursor]) this.#cursor = null;
    this.#answer = answer;
    setText(this.note, gapWords(answer, clock));
    setAttribute(this.note, "class", "note");
    this.#draw(answer);
  }

  /** What was read before stays; the words say that it is old. */
  #fail(error) {
    const old = this.#answer ? " What is shown is older." : "";
    setText(this.note, `${FAILED}: ${error.message}${old}`);
    setAttribute(this.note, "class", "problem");
  }

  #draw(answer) {
    for (const { chart, plot, note } of this.charts) {
      plot.draw({ ...answer, layers: chart.layers(answer) });
      plot.mark(this.#cursor);
      setText(note, chart.note(answer));
    }
    this.#drawLegends(answer);
  }

  #drawLegends(answer) {
    for (const { chart, legend, note } of this.charts) {
      const layers = chart.layers(answer);
      const isAt = this.#cursor !== null;
      setText(note, isAt ? clock(answer.times[this.#cursor]) : chart.note(answer));
      drawLegend(legend, layers, (layer) => {
        const value = isAt ? layer.values[this.#cursor] : chart.value(layer);
        return value === null || value === undefined ? "–" : chart.words(value);
      });
    }
  }

  #point(index, isByKey, { chart, legend }) {
    if (this.#answer === null) return;
    this.#cursor = index;
    for (const { plot } of this.charts) plot.mark(index);
    this.#drawLegends(this.#answer);
    if (!isByKey || index === null) return;
    const words = [...legend.children].map((item) => item.textContent).join(", ") || chart.hint;
    setText(this.spoken, `${clock(this.#answer.times[index])}: ${words}`);
  }

  #drawButtons() {
    const { key } = chosenRange();
    for (const button of this.buttons.children) {
      setAttribute(button, "aria-pressed", String(button.dataset.range === key));
    }
  }

  #createChart(chart, about) {
    const root = element("div", "plot chart");
    const note = element("p", "note");
    const legend = element("ul", "legend");
    const head = element("div", "card-head", element("h4", "", chart.title), note);
    const node = element("div", "chart-box", head, root, legend);
    root.tabIndex = 0;
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", `${chart.title} ${about}. Arrow keys read out earlier moments.`);
    root.dataset.testid = `chart-${chart.key}`;
    legend.dataset.testid = `legend-${chart.key}`;
    note.dataset.testid = `note-${chart.key}`;
    const created = { chart, node, note, legend };
    const onCursor = (index, isByKey) => this.#point(index, isByKey, created);
    created.plot = new RangeChart(root, { ...chart, onCursor });
    return created;
  }
}

function rangeButtons(onChoice) {
  const buttons = RANGES.map(({ key, words }) => {
    const button = element("button", "quiet", words);
    button.type = "button";
    button.dataset.range = key;
    button.addEventListener("click", () => onChoice(key));
    return button;
  });
  const group = element("div", "actions", ...buttons);
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "Range of time");
  group.dataset.testid = "history-range";
  return group;
}

function drawLegend(list, layers, words) {
  keyed(list, layers, {
    key: (layer) => layer.key,
    create: () => element("li", "", element("span", "swatch"), element("span"), " ", element("b")),
    update: (item, layer) => {
      const [, name, value] = item.children;
      setAttribute(item, "class", layer.className);
      if (layer.title) setAttribute(item, "title", `${layer.title} this time`);
      setText(name, layer.name);
      setText(value, words(layer));
    },
  });
  show(list, layers.length > 0);
}
