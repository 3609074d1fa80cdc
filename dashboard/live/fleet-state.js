// The fleet's state from events: a snapshot, then deltas.

/** Entries by id. Each stores when its times were read, since no event reports that time passed. */
class Entries {
  constructor() {
    this.clocks = []; // fields that go on by themselves
    this.byId = new Map();
    this.numChanges = 0; // numbers each change, so that only changed entries are drawn
  }

  replace(entries, at, clocks) {
    this.clocks = clocks;
    this.byId.clear();
    this.change(entries, [], at);
  }

  change(entries, gone, at) {
    for (const id of gone) this.byId.delete(id);
    for (const entry of entries) {
      const changeNumber = (this.numChanges += 1);
      this.byId.set(entry.id, { ...this.byId.get(entry.id), ...entry, at, changeNumber });
    }
  }

  /** All of them as they are at `now`. */
  list(now) {
    return [...this.byId.values()].map((entry) => {
      const aged = { ...entry };
      for (const clock of this.clocks) aged[clock] += now - entry.at;
      return aged;
    });
  }
}

export class FleetState {
  #totals = null;
  #agents = new Entries();
  #requests = new Entries();

  /** Take in the event `snapshot`. */
  replace({ agents, requests, clocks, ...totals }) {
    this.#totals = totals;
    this.#agents.replace(agents, totals.at, clocks.agents);
    this.#requests.replace(requests, totals.at, clocks.requests);
  }

  /** Take in the event `delta`, which leaves out what is empty. */
  change({
    agents = [],
    agents_left: agentsLeft = [],
    requests = [],
    requests_ended: requestsEnded = [],
    ...totals
  }) {
    this.#totals = { ...this.#totals, ...totals }; // what is wrong is there only if it changed
    this.#agents.change(agents, agentsLeft, totals.at);
    this.#requests.change(requests, requestsEnded, totals.at);
  }

  /** The whole fleet as of the last event. Entries stay in the order of their events. */
  fleet() {
    const { at } = this.#totals;
    return { ...this.#totals, agents: this.#agents.list(at), requests: this.#requests.list(at) };
  }
}
