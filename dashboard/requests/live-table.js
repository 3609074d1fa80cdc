// A table of requests that wait or run, for pages that show some of them.

import { element, keyed, setText, show } from "../dom.js";
import { count, plural } from "../format.js";
import { LIVE_HEADS, createRow, updateRow } from "./row.js";

const MAX_ROWS = 200;

export class LiveTable {
  /** Draws itself into the card `root`. */
  constructor(root, title) {
    const heading = element("h3", "", title);
    heading.id = `${root.id}-title`;
    this.note = element("p", "note", "none");
    this.rows = element("tbody");
    this.table = element("table", "cards", caption(title), heads(), this.rows);
    this.table.hidden = true;
    const scroll = element("div", "scroll", this.table);
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-labelledby", heading.id);
    root.setAttribute("aria-labelledby", heading.id);
    root.append(element("div", "card-head", heading, this.note), scroll);
  }

  /** Show those of the fleet's requests that `matches` accepts. */
  draw(fleet, matches) {
    const found = fleet.requests.filter(matches);
    const names = new Map(fleet.agents.map((agent) => [agent.id, agent.name]));
    const elapsed = (performance.now() - fleet.receivedAt) / 1000;
    setText(this.note, found.length ? noteOf(fleet, found.length) : "none");
    show(this.table, found.length > 0);
    keyed(this.rows, found.slice(0, MAX_ROWS), {
      key: (request) => request.id,
      create: createRow,
      update: (row, request) => updateRow(row, request, { names, elapsed }),
    });
  }
}

/** The page knows the oldest requests alone when there are many. */
function noteOf({ num_requests: num, requests }, numFound) {
  const words = plural(numFound, "request");
  return num > requests.length ? `${words} among the oldest ${count(requests.length)}` : words;
}

function caption(title) {
  return element("caption", "hidden", `${title}, oldest first`);
}

function heads() {
  const cells = LIVE_HEADS.map(([words, className]) => element("th", className, words));
  cells.push(element("th", "", element("span", "hidden", "Cancel")));
  for (const cell of cells) cell.scope = "col";
  return element("thead", "", element("tr", "", ...cells));
}
