// Wires the page: what the balancer says goes to the parts that draw it.

import { byId, copies, element, keyed, setAttribute, setText, show } from "./dom.js";
import { drawAgentRates, drawAgents, drawRate, drawTotals } from "./fleet.js";
import { ago, count, rate } from "./format.js";
import { FleetState } from "./fleet-state.js";
import { History, WINDOW } from "./history.js";
import { connect } from "./live.js";
import { offerModels, startPlayground } from "./playground.js";
import { Plot } from "./plot.js";
import { drawRequests } from "./requests.js";

const history = new History();
const state = new FleetState();
let fleet = null;
let cursor = null; // the point of the plots that the reader points at

const throughputPlot = new Plot(byId("throughput-plot"), {
  seconds: WINDOW,
  minimum: 10,
  hint: "No tokens yet. Ask something in the playground.",
  onCursor: moveCursor,
});
const queuePlot = new Plot(byId("queue-plot"), {
  seconds: WINDOW,
  minimum: 4,
  hint: "Nobody waits.",
  onCursor: moveCursor,
});
const queueLayer = {
  key: "queue",
  name: "waiting",
  className: "series-queue",
  value: (point) => point.queue,
};

function onEvent(name, data) {
  if (name === "throughput") return onThroughput(data);
  if (name === "snapshot") state.replace(data);
  else state.change(data);
  return onFleet();
}

function onFleet() {
  fleet = { ...state.fleet(), receivedAt: performance.now() };
  history.know(fleet.agents);
  drawTotals(fleet);
  drawAgents(fleet.agents, (id) => history.colourClass(id));
  drawTable();
  const models = fleet.agents.flatMap((agent) => agent.model ?? []);
  const generating = models.filter((model) => model.tasks.includes("generate"));
  offerModels([...new Set(generating.map((model) => model.name))].sort());
  drawBanner();
}

function onThroughput(event) {
  history.add(performance.now() / 1000, event);
  if (!history.points.includes(cursor)) cursor = null;
  throughputPlot.draw(history.points, history.layers());
  queuePlot.draw(history.points, [queueLayer]);
  drawRate(event, fleet.tokens_total);
  drawAgentRates(event.agents);
  drawReadOut();
  drawTable();
}

function drawTable() {
  drawRequests(fleet, new Map(fleet.agents.map((agent) => [agent.id, agent.name])));
}

function moveCursor(point, isByKey) {
  cursor = point;
  throughputPlot.mark(point);
  queuePlot.mark(point);
  drawReadOut();
  if (isByKey && point) {
    setText(
      byId("plot-status"),
      `${when(point)}: ${rate(point.total)} tokens per second, ${count(point.queue)} waiting`,
    );
  }
}

/** The legend is the read-out: values at the cursor, or those of now. */
function drawReadOut() {
  const point = cursor ?? history.points.at(-1);
  if (!point) return;
  setText(byId("plot-time"), cursor ? when(cursor) : "now");
  setText(byId("queue-value"), count(point.queue));
  const layers = history.layers();
  const total = { key: "total", name: "total", className: "series-total", value: (at) => at.total };
  keyed(byId("throughput-legend"), layers.length > 1 ? [...layers, total] : layers, {
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

function when(point) {
  return ago(history.points.at(-1).at - point.at);
}

let lostAt = null;

function onState(state) {
  const words = { connecting: "connecting…", live: "live", lost: "dialling again…" };
  setText(byId("connection"), words[state]);
  setAttribute(byId("connection"), "data-state", state);
  if (state === "live") lostAt = null;
  if (state === "lost") lostAt ??= new Date();
  document.body.classList.toggle("stale", lostAt !== null);
  drawBanner();
}

function drawBanner() {
  const banner = byId("banner");
  if (lostAt && fleet) {
    const time = lostAt.toLocaleTimeString();
    setText(banner, `Lost the balancer at ${time}. This page shows the state at that time. Reconnecting.`);
  } else if (lostAt) {
    setText(banner, "The balancer does not answer. Reconnecting.");
  } else if (fleet?.is_draining) {
    setText(banner, "The balancer is shutting down: running requests may finish, new ones are refused.");
  }
  show(banner, lostAt !== null || Boolean(fleet?.is_draining));
}

/** The commands that the empty states suggest, with this very address in them. */
function writeCommands() {
  const base = new URL(".", location.href).href.replace(/\/$/, "");
  const socket = base.replace(/^http/, "ws");
  setText(byId("agent-command"), `agent --balancer ${socket} --model path/to/model.gguf`);
  setText(
    byId("curl-command"),
    `curl -N ${base}/api/v1/generate --json '{"prompt": "Once upon a time"}'`,
  );
  copies(byId("copy-command"), byId("agent-command"));
  copies(byId("copy-curl"), byId("curl-command"));
}

writeCommands();
startPlayground();
connect({
  url: "api/v1/events",
  events: ["snapshot", "delta", "throughput"],
  onEvent,
  onState,
});
