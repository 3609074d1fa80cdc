// Wires the page: what the balancer says goes to the page that is shown.

import { DeviceHistory } from "./agents/devices.js";
import { learnAddresses } from "./commands.js";
import { byId, setAttribute, setText, show } from "./dom.js";
import { connect } from "./live/connection.js";
import { FleetState } from "./live/fleet-state.js";
import { drawTroubles } from "./live/troubles.js";
import { AgentPage } from "./pages/agent.js";
import { BatchesPage } from "./pages/batches.js";
import { ClosedPage, isClosed } from "./pages/closed.js";
import { FleetPage } from "./pages/fleet.js";
import { KeysPage } from "./pages/keys.js";
import { MissingPage } from "./pages/missing.js";
import { ModelPage } from "./pages/model.js";
import { ModelsPage } from "./pages/models.js";
import { PlaygroundPage } from "./pages/playground.js";
import { RequestsPage } from "./pages/requests.js";
import { drawRate, drawTotals } from "./pages/totals.js";
import { UsagePage } from "./pages/usage.js";
import { foldTables } from "./fold.js";
import { timeOfDay } from "./format.js";
import { explainTerms, hideHint } from "./hints.js";
import { get } from "./management.js";
import { History, WINDOW } from "./plots/history.js";
import { startRouter } from "./router.js";
import { beginSession, checkSession } from "./session.js";

const history = new History();
const devices = new DeviceHistory();
const state = new FleetState();
const pages = {
  fleet: new FleetPage(history),
  agents: new AgentPage(history, devices),
  models: new ModelsPage(),
  model: new ModelPage(),
  requests: new RequestsPage(),
  batches: new BatchesPage(),
  usage: new UsagePage(),
  keys: new KeysPage(),
  playground: new PlaygroundPage(),
  missing: new MissingPage(),
  closed: new ClosedPage(),
};
const TITLES = { agents: "Agent", missing: "No such page", closed: "Not for your role" };
const ANSWERS = ["missing", "closed"]; // what is shown in place of what the address asks for
const TABS = { agents: "fleet", model: "models" }; // pages without a tab of their own

explainTerms();
foldTables();

let fleet = null;
let route = null; // what the address asks for
let shown = null; // the name of the page that is shown
let isDrawing = false;
let isFilled = false; // the plots have what was before this page was opened
let lostAt = null; // in seconds since 1970
let numTroubles = 0;

function onRoute(asked) {
  route = asked;
  const { name, argument, query } = route;
  const isMoved = shown !== null;
  if (isMoved) leave();
  shown = pageOf(route);
  for (const each of Object.keys(pages)) show(byId(`page-${each}`), each === shown);
  drawTabs();
  if (ANSWERS.includes(shown)) pages[shown].open(name);
  else pages[shown].open(argument, query);
  if (fleet) drawTitle();
  if (fleet) drawPage();
  if (isMoved) byId("main").focus({ preventScroll: true });
  if (isMoved) scrollTo(0, 0);
}

/** What lies over a page goes with it. */
function leave() {
  pages[shown].close?.();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  hideHint();
}

function pageOf({ name, argument }) {
  if (name === "models" && argument) return "model";
  if (isClosed(name)) return "closed";
  return Object.hasOwn(pages, name) && !ANSWERS.includes(name) ? name : "missing";
}

function drawTabs() {
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    const { page } = link.dataset;
    if (page === shown) link.setAttribute("aria-current", "page");
    else if (page === TABS[shown]) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function onEvent(name, data) {
  if (name === "throughput") return onThroughput(data);
  if (name === "snapshot") onBalancer();
  if (name === "snapshot") state.replace(data);
  else state.change(data);
  if (data.requests_ended || name === "snapshot") {
    pages.requests.onEnded();
    pages.batches.onEnded();
    pages.usage.onEnded();
    pages.keys.onEnded();
  }
  return drawSoon();
}

// It may be another one than before.
async function onBalancer() {
  checkRole();
  const about = await learnAddresses();
  for (const note of document.querySelectorAll(".keeps-nothing")) show(note, about?.is_lasting === false);
}

/** Whether somebody is logged in still, and whether the page is still for their role. */
async function checkRole() {
  await checkSession();
  if (pageOf(route) !== shown) onRoute(route);
}

// Several events may come between two pictures of the screen; one drawing is enough for them.
function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  const draw = () => {
    isDrawing = false;
    onFleet();
  };
  if (document.hidden) setTimeout(draw, 500);
  else requestAnimationFrame(draw);
}

function onFleet() {
  fleet = { ...state.fleet(), receivedAt: performance.now() };
  history.know(fleet.agents);
  devices.know(fleet.agents, fleet.receivedAt / 1000);
  if (!isFilled) fillPlots();
  drawTotals(fleet);
  numTroubles = drawTroubles(fleet);
  drawTitle();
  drawPage();
  drawBanner();
}

async function fillPlots() {
  isFilled = true;
  const offset = fleet.receivedAt / 1000 - fleet.at;
  const since = Math.max(1, Math.floor(fleet.at) - WINDOW);
  const chart = await get(`api/v1/history?by=agent&step=1&since=${since}`).catch(() => null);
  if (chart === null) return; // they begin now
  history.fill(chart, offset);
  pages.fleet.drawPast();
}

function drawPage() {
  pages[shown].draw(fleet);
}

function onThroughput(event) {
  history.add(performance.now() / 1000, event);
  if (!fleet) return;
  drawRate(event, fleet.tokens_total);
  pages[shown].drawThroughput(event, fleet);
}

function drawTitle() {
  const { slots } = fleet;
  const name = TITLES[shown] ?? `${shown[0].toUpperCase()}${shown.slice(1)}`;
  const wrong = numTroubles ? `(${numTroubles}) ` : "";
  const busy = slots.total ? `${slots.busy}/${slots.total} busy · ` : "";
  document.title = `${wrong}${busy}${name} · Arriero`;
}

function onState(state) {
  const words = { connecting: "connecting…", live: "live", lost: "dialling again…" };
  setText(byId("connection"), words[state]);
  setAttribute(byId("connection"), "data-state", state);
  if (state === "live") lostAt = null;
  if (state === "lost") checkRole();
  if (state === "lost") lostAt ??= Date.now() / 1000;
  document.body.classList.toggle("stale", lostAt !== null);
  drawBanner();
}

function drawBanner() {
  const banner = byId("banner");
  if (lostAt && fleet) {
    const time = timeOfDay(lostAt);
    setText(
      banner,
      `Lost the balancer at ${time}. This page shows the state at that time. Reconnecting.`,
    );
  } else if (lostAt) {
    setText(banner, "The balancer does not answer. Reconnecting.");
  } else {
    setText(banner, "The balancer is shutting down: running requests may finish, new ones are refused.");
  }
  show(banner, lostAt !== null || Boolean(fleet?.is_draining));
}

if (await beginSession()) {
  startRouter(onRoute);
  pages.fleet.diary.start();
  connect({
    url: "api/v1/events",
    events: ["snapshot", "delta", "throughput"],
    onEvent,
    onState,
  });
}
