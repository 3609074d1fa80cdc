// The page of usage: requests, errors and tokens of callers, by caller, model or day.

import { byId, element, setText, show } from "../dom.js";
import { count, percent, plural } from "../format.js";
import { labelCells } from "../labels.js";
import { get, paced } from "../management.js";
import { linkTo, rewriteAddress } from "../router.js";

const DEFAULTS = { by: "caller", since: "30d" };
const NAMES = { day: "Day (UTC)", caller: "Caller", model: "Model" };
const COUNTS = ["requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens"];
const MAX_ROWS = 500;
const PAUSE = 5000; // milliseconds between two looks while requests end

export class UsagePage {
  #usage = null;
  #problem = "";

  constructor() {
    this.load = paced(() => this.#fetch(), PAUSE);
    for (const name of Object.keys(DEFAULTS)) {
      byId(`usage-${name}`).addEventListener("input", () => this.#chosen());
    }
  }

  open(_argument, query) {
    for (const [name, usual] of Object.entries(DEFAULTS)) {
      const input = byId(`usage-${name}`);
      input.value = query.get(name) ?? usual;
      if (!input.value) input.value = usual; // no such choice
    }
    this.#fetch();
  }

  /** A request has ended: the numbers are old. */
  onEnded() {
    if (!byId("page-usage").hidden) this.load();
  }

  draw() {}

  drawThroughput() {}

  #choice() {
    return Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, byId(`usage-${name}`).value]));
  }

  #chosen() {
    rewriteAddress(linkTo("usage", "", this.#choice()));
    this.#fetch();
  }

  async #fetch() {
    const choice = this.#choice();
    let usage = null;
    let problem = "";
    try {
      usage = await get(`api/v1/usage?${new URLSearchParams(choice)}`);
    } catch (error) {
      problem = `Usage cannot be read: ${error.message}`;
    }
    const now = this.#choice();
    if (now.by !== choice.by || now.since !== choice.since) return; // the reader chose anew
    this.#usage = usage;
    this.#problem = problem;
    this.#draw();
  }

  #draw() {
    const rows = this.#usage?.usage ?? [];
    show(byId("no-usage"), rows.length === 0);
    setText(byId("no-usage"), this.#problem || "Nothing was used in these days.");
    show(byId("usage-table"), rows.length > 0);
    setText(byId("usage-note"), this.#usage ? note(this.#usage) : "");
    if (rows.length > 0) drawTable(this.#usage);
  }
}

function note({ since, until, usage, total }) {
  const days = since === until ? since : `${since} to ${until}`;
  const shown = usage.length > MAX_ROWS ? `; the first ${MAX_ROWS} of ${plural(usage.length, "row")}` : "";
  return `${days} (UTC), ${plural(total.requests, "request")}${shown}`;
}

function drawTable({ by, usage, total }) {
  const heads = by.map((name) => heading(NAMES[name]));
  heads.push(...NUMBERS.map(numberHeading));
  byId("usage-head").replaceChildren(...heads);
  const rows = usage.slice(0, MAX_ROWS).map((row) => tableRow(by, row));
  byId("usage-rows").replaceChildren(...rows);
  const label = element("td", "total-label", "Total");
  label.colSpan = by.length;
  byId("usage-total").replaceChildren(label, ...numbers(total));
  labelCells(byId("usage-total"), [[""], ...NUMBERS.map((name) => [name])]);
}

const NUMBERS = ["Requests", "Errors", "Prompt tokens", "Cached", "Answer tokens"];

function heading(text, className = "") {
  const cell = element("th", className, text);
  cell.scope = "col";
  return cell;
}

const numberHeading = (text) => heading(text, "number");

function tableRow(by, row) {
  const line = element("tr", "", ...by.map((name) => nameCell(name, row[name])), ...numbers(row));
  labelCells(line, [...by.map((name) => [NAMES[name]]), ...NUMBERS.map((name) => [name])]);
  line.dataset.testid = "usage-row";
  return line;
}

function nameCell(name, value) {
  if (name === "day" || !value) return element("td", "", value || "–");
  const link = element("a", "", value);
  link.href = linkTo("requests", "", { state: "ended", [name]: value });
  return element("td", "", link);
}

function numbers(row) {
  return COUNTS.map((name) => {
    const cell = element("td", "number", count(row[name]));
    if (name === "cached_tokens" && row.prompt_tokens > 0) {
      cell.title = `${percent(row.cached_tokens / row.prompt_tokens)} of the prompts' tokens`;
    }
    return cell;
  });
}
