// Hosts that were here and are not, and why they went.

import { byId, element, keyed, setText, show } from "../dom.js";
import { ago, bytes, fullTime, plural } from "../format.js";
import { labelCells } from "../labels.js";
import { call, get, paced, path } from "../management.js";
import { drawPill } from "../states.js";

const HEADS = [["Host"], ["Went"], ["Last seen"], ["Labels"], ["Has"]];
const SHADES = { lost: "bad", drained: "queued", stopped: "" };

export class Hosts {
  #hosts = [];

  /** `onLoad` is called when they are drawn. */
  constructor(onLoad) {
    this.onLoad = onLoad;
    this.load = paced(() => this.#load());
  }

  async #load() {
    const { hosts } = await get("api/v1/hosts").catch(() => ({ hosts: this.#hosts }));
    this.#hosts = hosts.filter(({ state }) => state !== "here");
    this.#draw();
  }

  #draw() {
    show(byId("hosts-gone"), this.#hosts.length > 0);
    setText(byId("hosts-note"), plural(this.#hosts.length, "host"));
    keyed(byId("hosts"), this.#hosts, {
      key: ({ name }) => name,
      create: (host) => createRow(host, () => this.load()),
      update: updateRow,
    });
    this.onLoad();
  }
}

function createRow({ name }, onForgotten) {
  const parts = {
    state: element("span", "pill"),
    seen: element("td"),
    labels: element("td", "why"),
    has: element("td", "why"),
  };
  const forget = element("button", "quiet for-operators", "Forget");
  forget.type = "button";
  forget.dataset.testid = "forget-host";
  forget.setAttribute("aria-label", `Forget ${name}`);
  forget.addEventListener("click", async () => {
    forget.disabled = true;
    try {
      await call("DELETE", path("hosts", name));
      onForgotten();
    } catch (error) {
      forget.disabled = false;
      setText(forget, "Try again");
      forget.title = error.message;
    }
  });
  const { state, seen, labels, has } = parts;
  const row = element("tr", "", element("td", "", name), element("td", "", state), seen, labels, has);
  row.append(element("td", "number", forget));
  labelCells(row, HEADS);
  row.dataset.testid = "host";
  row.parts = parts;
  return row;
}

function updateRow({ parts }, host) {
  drawPill(parts.state, SHADES[host.state] ?? "", host.state);
  setText(parts.seen, ago(Math.max(0, Date.now() / 1000 - host.last_seen)));
  parts.seen.title = fullTime(host.last_seen);
  const pairs = Object.entries(host.labels).map(([name, value]) => `${name}=${value}`);
  setText(parts.labels, pairs.join(", ") || "–");
  const devices = host.devices.map(({ name, memory }) => `${name}, ${bytes(memory)}`);
  setText(parts.has, [plural(host.cores, "core"), bytes(host.memory), ...devices].join(" · "));
}
