// The fields of a model in the desired state: how each is read from a form and written into it. Pure.

import { list, number, pairs, required, text, time } from "../field-kinds.js";

/** `all` or a whole number. */
const replicas = {
  show: (value) => String(value ?? "all"),
  read: (value) => {
    if (value.trim() === "all" || value.trim() === "") return "all";
    if (!/^\d+$/.test(value.trim())) throw new Error("give a whole number, or all");
    return Number(value);
  },
};

/** Options by name, as JSON. What is not chosen is left out. */
const options = {
  show: (value) => {
    const chosen = Object.entries(value ?? {}).filter(([, each]) => each !== null);
    return chosen.length ? JSON.stringify(Object.fromEntries(chosen)) : "";
  },
  read: (value) => {
    if (value.trim() === "") return {};
    const read = parse(value);
    const isObject = read !== null && typeof read === "object" && !Array.isArray(read);
    if (!isObject) throw new Error('write an object such as {"temperature": 0.7}');
    return read;
  },
};

function parse(value) {
  try {
    return JSON.parse(value);
  } catch (error) {
    throw new Error(`this is no JSON: ${error.message}`);
  }
}

/** Adapters as a JSON list, one a line. */
const adapters = {
  show: (value) => (value?.length ? `[${value.map((each) => JSON.stringify(each)).join(",\n ")}]` : ""),
  read: (value) => {
    if (value.trim() === "") return [];
    const read = parse(value);
    if (!Array.isArray(read)) throw new Error("write a list of adapters, in square brackets");
    return read;
  },
};

const yes = { show: (value) => value ?? true, read: (value) => value };

/** `path`: where it stands in a model. */
export const FIELDS = [
  { path: "name", label: "Name", kind: required, hint: "what clients ask for" },
  {
    path: "source",
    label: "Source",
    kind: required,
    hint: "hf://org/repo:Q4_K_M, https://… or file:///path/on/the/agent",
    isWide: true,
  },
  { path: "aliases", label: "Aliases", kind: list, hint: "gpt-4o-mini, small" },
  { path: "agents.replicas", label: "Agents", kind: replicas, hint: "a number, or all" },
  { path: "agents.labels", label: "Labels of agents", kind: pairs, hint: "gpu=yes, zone=a" },
  { path: "slots", label: "Slots", kind: number, hint: "the agent's own" },
  { path: "context_size", label: "Context size", kind: number, hint: "the agent's own" },
  { path: "idle_timeout", label: "Unload when idle for", kind: time, hint: "never" },
  { path: "preload", label: "Load at once", kind: yes, isCheck: true },
  {
    path: "sampling",
    label: "Sampling defaults",
    kind: options,
    hint: '{"temperature": 0.7}',
    isMore: true,
  },
  { path: "sha256", label: "SHA-256", kind: text, hint: "not checked", isMore: true },
  {
    path: "engine",
    label: "Engine",
    kind: options,
    hint: '{"gpu_layers": -1, "draft_model": "hf://org/repo:Q8_0"}',
    isMore: true,
    isWide: true,
  },
  {
    path: "projector",
    label: "Projector",
    kind: text,
    hint: "a source, for models that read pictures",
    isMore: true,
    isWide: true,
  },
  {
    path: "adapters",
    label: "Adapters",
    kind: adapters,
    hint: '[{"name": "support", "source": "file:///support.gguf", "scale": 0.8}]',
    isMore: true,
    isLong: true,
  },
  {
    path: "chat_template",
    label: "Chat template",
    kind: text,
    hint: "the one in the file",
    isMore: true,
    isLong: true,
  },
];

/** What stands at `path` in `model`. */
export const at = (model, path) => path.split(".").reduce((value, key) => value?.[key], model);

/** A copy of `model` with `value` at `path`. */
export function withValue(model, path, value) {
  const [key, ...rest] = path.split(".");
  const inner = rest.length ? withValue(model[key] ?? {}, rest.join("."), value) : value;
  return { ...model, [key]: inner };
}

/** The field that a problem of the balancer's is about, and the place of its model in the state. */
export function fieldOf(problem) {
  const found = /^models[.[](\d+)\]?\.?(.*)$/.exec(problem.field ?? "");
  if (!found) return null;
  const field = FIELDS.find(({ path }) => found[2] === path || found[2].startsWith(`${path}.`) || found[2].startsWith(`${path}[`));
  return field ? { index: Number(found[1]), field } : null;
}
