// What the plots show: a point a second for the last minutes, and who has which colour.

export const WINDOW = 180; // seconds
const GAP = 3.5; // seconds between two points after which the line breaks
const NUM_COLOURS = 8;
const OTHERS = "others";

export class History {
  constructor() {
    this.points = [];
    this.colours = new Map(); // agent id → index; the first eight agents have their own
    this.names = new Map();
    this.present = new Set();
  }

  /** Update the agents: new ones get a free colour, those that left stay while visible. */
  know(agents) {
    this.present = new Set(agents.map((agent) => agent.id));
    for (const agent of agents) {
      this.names.set(agent.id, agent.name);
      if (this.colours.has(agent.id)) continue;
      const colour = this.#freeColour();
      if (colour !== -1) this.colours.set(agent.id, colour);
    }
  }

  /** Add what the event `throughput` said at `at` (seconds by any steady clock). */
  add(at, event) {
    const last = this.points.at(-1);
    this.points.push({
      at,
      total: event.tokens_per_second,
      queue: event.queue_depth,
      rates: event.agents,
      sum: Object.values(event.agents).reduce((sum, rate) => sum + rate, 0),
      isAfterGap: last !== undefined && at - last.at > GAP,
    });
    const firstNeeded = this.points.findIndex((point) => at - point.at <= WINDOW + 2);
    this.points.splice(0, firstNeeded);
    this.#forget();
  }

  /**
   * Put the past in front of what came since: `chart` is of /api/v1/history, by agent; `offset` is
   * the steady clock of `add` less the time since 1970.
   */
  fill({ times, step, levels, lines }, offset) {
    const ids = new Map([...this.names].map(([id, name]) => [name, id]));
    const until = this.points[0]?.at ?? Infinity;
    const past = times.map((time, index) => {
      const named = lines.map((line) => [ids.get(line.name), line.tokens_per_second[index] ?? 0]);
      const sum = named.reduce((all, [, value]) => all + value, 0);
      const rates = Object.fromEntries(named.filter(([id, value]) => id !== undefined && value > 0));
      return { at: time + step + offset, total: sum, queue: levels[index]?.queue_peak ?? 0, rates, sum };
    });
    const older = past.filter((point) => point.at < until - step / 2);
    older.forEach((point, index) => {
      point.isAfterGap = index > 0 && point.at - older[index - 1].at > GAP;
    });
    this.points.unshift(...older);
  }

  /** The class that carries the colour of an agent. */
  colourClass(id) {
    return `series-${this.colours.get(id) ?? OTHERS}`;
  }

  /** What is stacked in the plot of tokens: a layer for each agent with a colour, and the others. */
  layers() {
    const layers = [...this.colours.keys()].map((id) => ({
      key: id,
      name: this.names.get(id),
      className: this.colourClass(id),
      value: (point) => point.rates[id] ?? 0,
    }));
    if (this.names.size > this.colours.size) layers.push(this.#others());
    return layers;
  }

  #others() {
    return {
      key: OTHERS,
      name: OTHERS,
      className: `series-${OTHERS}`,
      value: (point) => {
        let sum = point.sum;
        for (const id of this.colours.keys()) sum -= point.rates[id] ?? 0;
        return Math.max(0, sum);
      },
    };
  }

  #freeColour() {
    const taken = new Set(
      [...this.colours].filter(([id]) => this.present.has(id)).map(([, colour]) => colour),
    );
    for (let colour = 0; colour < NUM_COLOURS; colour += 1) if (!taken.has(colour)) return colour;
    return -1;
  }

  /** Forget agents that have left and have no visible points. */
  #forget() {
    const seen = new Set(this.points.flatMap((point) => Object.keys(point.rates)));
    for (const id of this.names.keys()) {
      if (seen.has(id) || this.present.has(id)) continue;
      this.names.delete(id);
      this.colours.delete(id);
    }
  }
}
