// The requests that wait for a slot, by class: how many, and for how long the first and half of them have.

import { byId, element, keyed, setText } from "../dom.js";
import { count, duration } from "../format.js";

const CLASSES = ["interactive", "default", "batch"];

/** Draw them as they are now: no event says that time has passed. */
export function drawWaits(fleet) {
  const elapsed = (performance.now() - fleet.receivedAt) / 1000;
  const waiting = fleet.requests.filter(({ state }) => state === "queued");
  keyed(byId("waits"), CLASSES, {
    key: (name) => name,
    create: (name) => {
      const words = element("b");
      const item = element("li", "", element("span", "", name), words);
      item.dataset.testid = `waits-${name}`;
      item.words = words;
      return item;
    },
    update: (item, name) => {
      const ages = waiting.filter((each) => each.priority_class === name);
      const seconds = ages.map((each) => each.age_seconds + elapsed);
      setText(item.words, words(fleet.queue.by_class?.[name] ?? 0, seconds));
    },
  });
}

/** The page knows the oldest requests alone when there are many: then the median is not known. */
function words(num, seconds) {
  if (!num || !seconds.length) return count(num);
  const longest = `${count(num)}, longest ${duration(Math.max(...seconds))}`;
  if (num === 1 || seconds.length < num) return longest;
  const sorted = seconds.toSorted((a, b) => a - b);
  return `${longest}, median ${duration(sorted[Math.floor(sorted.length / 2)])}`;
}
