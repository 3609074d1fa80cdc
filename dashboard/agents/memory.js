// What lies where: the memory of each device of an agent's host, split by model.

import { element, keyed, setAttribute, setText, svg } from "../dom.js";
import { bytes } from "../format.js";
import { term } from "../hints.js";

const WIDTH = 1000; // of a bar, in its own units
const NUM_COLOURS = 8;

/** Draw a bar for each device of `agent` whose memory is known. */
export function drawMemory(list, agent) {
  const models = agent.models.map(({ name }) => name);
  const devices = (agent.devices ?? []).filter(({ memory }) => memory.total > 0);
  keyed(list, devices, {
    key: ({ name }) => name,
    create: createDevice,
    update: (node, device) => updateDevice(node, device, partsOf(device, models)),
  });
}

function createDevice({ name, kind }) {
  const size = element("span", "note");
  const bar = svg("svg", { viewBox: `0 0 ${WIDTH} 1`, preserveAspectRatio: "none", role: "img", class: "memory-bar" });
  const legend = element("ul", "legend");
  const head = element("p", "memory-head", element("strong", "", kind === "cpu" ? "Host" : name), size);
  const node = element("li", "memory", head, bar, legend);
  node.parts = { size, bar, legend };
  return node;
}

function updateDevice({ parts }, { name, kind, memory }, split) {
  setText(parts.size, bytes(memory.total));
  const words = split.map((part) => `${part.name} ${bytes(part.size)}`).join(", ");
  setAttribute(parts.bar, "aria-label", `Memory of ${kind === "cpu" ? "the host" : name}: ${words}`);
  keyed(parts.bar, split, {
    key: ({ key }) => key,
    create: () => svg("rect", { y: 0, height: 1 }),
    update: (rect, part) => {
      setAttribute(rect, "class", part.colour);
      setAttribute(rect, "x", String(part.from * WIDTH));
      setAttribute(rect, "width", String(part.share * WIDTH));
    },
  });
  keyed(parts.legend, split, {
    key: ({ key }) => key,
    create: (part) => {
      const label = element("span", "", part.isModel ? part.name : term(part.name));
      return element("li", "", element("span", `swatch ${part.colour}`), label, element("b"));
    },
    update: (item, part) => {
      setAttribute(item.firstElementChild, "class", `swatch ${part.colour}`);
      setText(item.lastElementChild, bytes(part.size));
    },
  });
}

/**
 * Models, what else is used, and the rest, as shares of the bar. What a model may take counts as
 * taken, though it may not have filled its caches yet; so what else is used is known at least.
 */
function partsOf({ models: held = [], memory }, models) {
  const parts = held.map(({ name, bytes: size }) => ({
    key: `model ${name}`,
    name,
    size,
    isModel: true,
    colour: `series-${Math.max(0, models.indexOf(name)) % NUM_COLOURS}`,
  }));
  const taken = held.reduce((sum, { bytes: size }) => sum + size, 0);
  const besides = Math.max(0, (memory.used ?? 0) - taken);
  const others = Math.min(besides, memory.others ?? besides); // all of it, where no driver tells
  const engines = besides - others;
  const free = Math.max(0, memory.total - taken - besides);
  if (engines) parts.push({ key: "engines", name: "Engines", size: engines, colour: "memory-engines" });
  if (others) parts.push({ key: "others", name: "Other programs", size: others, colour: "series-others" });
  parts.push({ key: "free", name: "Free", size: free, colour: "memory-free" });
  const whole = Math.max(memory.total, taken + besides);
  let from = 0;
  for (const part of parts) {
    part.from = from;
    part.share = part.size / whole;
    from += part.share;
  }
  return parts;
}
