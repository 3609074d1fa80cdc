// The devices of an agent's host: memory, use and temperature, each with its last minutes.

import { element, keyed, setText } from "../dom.js";
import { bytes } from "../format.js";
import { term } from "../hints.js";
import { Sparkline } from "../plots/sparkline.js";
import { filled, valueAt } from "./facts.js";
import { DEVICE_FIGURES } from "./figures.js";

const SECONDS = 600;
const MAX_POINTS = 240; // of a figure; one comes every five seconds
const OF_HOST = { Use: "Processor" }; // titles that the host itself has

/**
 * What agents said of their devices: since the page was opened, and for agents that were looked at
 * the minutes before. Of those that are here alone.
 */
export class DeviceHistory {
  #agents = new Map(); // agent id → name of a device's figure → points
  #last = new Map(); // agent id → the devices as they were said last

  /** Note what is new; `now` in seconds by any steady clock. */
  know(agents, now) {
    const here = new Set(agents.map(({ id }) => id));
    for (const id of this.#agents.keys()) if (!here.has(id)) this.#forget(id);
    for (const { id, devices = [] } of agents) {
      if (this.#last.get(id) === devices) continue;
      this.#last.set(id, devices);
      for (const device of devices) for (const figure of figuresOf(device)) this.#add(id, figure, now);
    }
  }

  /**
   * Put the past of an agent in place of what is known of that time: `past` is of
   * /api/v1/agents/ID/devices; `offset` is the clock of `know` less the time since 1970.
   */
  fill(id, { step, devices }, offset) {
    for (const device of devices) {
      for (const { title, past } of DEVICE_FIGURES) {
        const points = device[past].map((value, index) => ({ at: device.times[index] + offset, value }));
        const known = points.filter(({ value }) => value !== null);
        if (known.length) this.#replace(id, `${device.name} ${title}`, known, step);
      }
    }
  }

  points(id, key) {
    return this.#agents.get(id)?.get(key) ?? [];
  }

  #replace(id, key, past, step) {
    const until = past.at(-1).at + step;
    const later = this.points(id, key).filter(({ at }) => at >= until);
    this.#figures(id).set(key, [...past, ...later]);
  }

  #figures(id) {
    if (!this.#agents.has(id)) this.#agents.set(id, new Map());
    return this.#agents.get(id);
  }

  #add(id, { key, value }, at) {
    const figures = this.#figures(id);
    if (!figures.has(key)) figures.set(key, []);
    const points = figures.get(key);
    points.push({ at, value });
    while (points.length > MAX_POINTS || at - points[0].at > SECONDS) points.shift();
  }

  #forget(id) {
    this.#agents.delete(id);
    this.#last.delete(id);
  }
}

/** Draw the devices of `agent` into the list. */
export function drawDevices(list, agent, history) {
  const figures = (agent.devices ?? []).flatMap(figuresOf);
  keyed(list, figures, {
    key: (figure) => figure.key,
    create: (figure) => {
      const plot = new Sparkline();
      const words = element("dd");
      const node = element("div", "fact", element("dt", "", `${figure.device}: `, term(figure.name)), words, element("dd", "", plot.node));
      node.parts = { words, plot };
      return node;
    },
    update: ({ parts }, figure) => {
      setText(parts.words, figure.words());
      parts.plot.draw(history.points(agent.id, figure.key), { seconds: SECONDS, most: figure.most });
    },
  });
}

/** What is known of a device; values that the system does not tell are left out. */
function figuresOf(device) {
  const isHost = device.kind === "cpu";
  return DEVICE_FIGURES.map(({ name, title, words, most }) => ({
    key: `${device.name} ${title}`,
    device: isHost ? "Host" : device.name,
    name: (isHost && OF_HOST[title]) || title,
    value: valueAt(device, name),
    most: typeof most === "string" ? valueAt(device, most) : most,
    words: () => (words ? filled(words, device) : memoryWords(device.memory)),
  })).filter(({ value }) => value !== null);
}

function memoryWords({ used, total, others = null }) {
  const theirs = others ? `, ${bytes(others)} by other programs` : "";
  return `${bytes(used)} of ${bytes(total)}${theirs}`;
}
