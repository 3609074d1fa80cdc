// What is wrong, first on every page: a line for each thing, with a link to where one sees more.

import { byId, element, keyed, setAttribute, setText, show } from "../dom.js";
import { plural } from "../format.js";
import { linkTo } from "../router.js";

const diary = () => linkTo("fleet", "", { show: "diary" });
const LINES = {
  model: ({ name, num }) => (name === null ? [`${plural(num, "model")}:`, linkTo("models")] : [`Model ${name}`, linkTo("models", name)]),
  hosts: ({ num }) => [`${plural(num, "lost host")}:`, linkTo("fleet", "", { show: "hosts" })],
  balancer: () => ["The balancer:", diary()],
  refused: ({ num }) => [`${plural(num, "refused caller")}:`, diary()],
};

/** Draw what is wrong in `fleet`; returns how many things that is. Nothing stands there while none is. */
export function drawTroubles({ agents, troubles }) {
  const lines = [...troubles.map(lineOf), ...issueLines(agents), ...nameLines(agents)];
  keyed(byId("troubles"), lines.length ? [lines] : [], {
    key: () => "list",
    create: () => element("ul"),
    update: (list) => keyed(list, lines, { key: ({ key }) => key, create: createLine, update: updateLine }),
  });
  return lines.length;
}

function lineOf(trouble) {
  const { kind, name, message, hint } = trouble;
  const [head, link] = LINES[kind](trouble);
  return { key: `${kind} ${name}`, head, link, message, hint };
}

/** Issues of agents by code, those of most agents first. */
function issueLines(agents) {
  const found = new Map();
  for (const agent of agents) {
    for (const issue of new Map(agent.issues.map((each) => [each.code, each])).values()) {
      const having = found.get(issue.code) ?? { ...issue, agents: [] };
      having.agents.push(agent);
      found.set(issue.code, having);
    }
  }
  const issues = [...found.values()].sort((a, b) => b.agents.length - a.agents.length);
  return issues.map(({ code, message, hint, agents: having }) => ({
    key: `issue ${code}`,
    head: `${plural(having.length, "agent")}:`,
    link: having.length > 1 ? linkTo("fleet", "", { agents: code }) : linkTo("agents", having[0].id),
    message: `${having.length > 1 ? "" : `${having[0].name}: `}${message} (${code})`,
    hint,
  }));
}

function nameLines(agents) {
  const counts = new Map();
  for (const { name } of agents) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].filter(([, num]) => num > 1).map(([name, num]) => ({
    key: `name ${name}`,
    head: plural(num, "agent"),
    link: linkTo("fleet", "", { agents: name }),
    message: `are called ${name}`,
    hint: "give each a --name of its own",
  }));
}

function createLine() {
  const line = element("li", "", element("a"), " ", element("span"), element("span", "hint"));
  line.dataset.testid = "trouble";
  return line;
}

function updateLine(line, { head, link, message, hint }) {
  const [name, words, advice] = line.children;
  setText(name, head);
  setAttribute(name, "href", link);
  setText(words, message);
  setText(advice, hint);
  show(advice, hint !== "");
}
