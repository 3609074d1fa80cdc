// A dry run as a diff: what changes in the desired state, and what each agent would do.

import { byId, element, keyed, setText, show } from "../dom.js";
import { plural } from "../format.js";
import { drawIssues } from "../issues.js";
import { linkTo } from "../router.js";
import { drawPill } from "../states.js";

const SIGNS = { added: "+", removed: "−", changed: "~" };
const SHADES = { keep: "good", load: "loading", reload: "queued", unload: "bad" };
const ORDER = ["unload", "reload", "load", "keep"];

/** Show the differences, what the agents would do, and which models would lack agents. */
export function drawPlan(lines, agents, lacking) {
  show(byId("plan"), true);
  const issues = lacking.flatMap(({ name, issues: found }) =>
    found.map((issue) => ({ ...issue, message: `${name}: ${issue.message}` })),
  );
  drawIssues(byId("plan-lacking"), issues);
  byId("plan-models").replaceChildren(...(lines.length ? lines : [null]).map(modelLine));
  const steps = [...agents].sort((a, b) => ORDER.indexOf(a.action) - ORDER.indexOf(b.action));
  show(byId("plan-table"), steps.length > 0);
  setText(byId("plan-note"), summary(steps));
  keyed(byId("plan-agents"), steps, {
    key: (step) => step.agent,
    create: createStep,
    update: updateStep,
  });
}

function modelLine(line) {
  if (line === null) return element("li", "", "The desired state stays as it is.");
  const item = element("li", `diff ${line.kind}`, `${SIGNS[line.kind]} ${line.name}`);
  const details = line.details.map(({ path, before, after }) => {
    const node = element("li", "", `${path}: `);
    if (before) node.append(element("del", "", before), " ");
    if (after) node.append(element("ins", "", after));
    return node;
  });
  if (details.length) item.append(element("ul", "", ...details));
  return item;
}

function summary(steps) {
  if (steps.length === 0) return "No agents are connected.";
  const counts = ORDER.map((action) => [action, steps.filter((step) => step.action === action)]);
  const words = counts.filter(([, found]) => found.length);
  return words.map(([action, found]) => `${plural(found.length, "agent")} ${action}`).join(", ");
}

function createStep(step) {
  const parts = {
    link: element("a", "", step.name),
    action: element("span", "pill"),
    model: element("td"),
    why: element("td", "why"),
  };
  const { link, action, model, why } = parts;
  link.href = linkTo("agents", step.agent);
  const row = element("tr", "", element("td", "", link), element("td", "", action), model, why);
  row.dataset.testid = "plan-step";
  row.parts = parts;
  return row;
}

function updateStep({ parts }, step) {
  setText(parts.link, step.name);
  drawPill(parts.action, SHADES[step.action] ?? "", step.action);
  setText(parts.model, step.model ?? "–");
  setText(parts.why, step.why);
}
