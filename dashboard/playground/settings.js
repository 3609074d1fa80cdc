// The request's settings: a form, and the fields of `/api/v1/generate` that it stands for.

import { byId, element } from "../dom.js";

const ANY = { min: undefined, max: undefined };

/** The samplers: name, least and greatest value, step. Those beside the composer are not here. */
const SAMPLERS = [
  ["top_k", 0, ANY.max, 1],
  ["top_p", 0, 1, 0.01],
  ["min_p", 0, 1, 0.01],
  ["typical_p", 0, 1, 0.01],
  ["top_n_sigma", -1, 100, 0.1],
  ["xtc_probability", 0, 1, 0.01],
  ["xtc_threshold", 0, 1, 0.01],
  ["repeat_penalty", 0, 10, 0.01],
  ["repeat_last_n", 0, ANY.max, 1],
  ["presence_penalty", -2, 2, 0.1],
  ["frequency_penalty", -2, 2, 0.1],
  ["dry_multiplier", 0, 100, 0.1],
  ["dry_base", 1, 100, 0.05],
  ["dry_allowed_length", 0, ANY.max, 1],
  ["dry_penalty_last_n", 0, ANY.max, 1],
  ["mirostat", 0, 2, 1],
  ["mirostat_tau", 0, 100, 0.1],
  ["mirostat_eta", 0, 10, 0.01],
  ["min_tokens", 0, ANY.max, 1],
  ["seed", 0, 2 ** 32 - 1, 1],
];

const inputs = new Map();

/** Draw the inputs of all samplers. */
export function startSettings() {
  for (const [name, min, max, step] of SAMPLERS) {
    const input = element("input");
    Object.assign(input, { type: "number", step, id: `sampler-${name}`, placeholder: "default" });
    if (min !== undefined) input.min = min;
    if (max !== undefined) input.max = max;
    const label = element("label", "", name.replaceAll("_", " "));
    label.htmlFor = input.id;
    byId("samplers").append(element("div", "field", label, input));
    inputs.set(name, input);
  }
  inputs.set("temperature", byId("temperature"));
  inputs.set("max_tokens", byId("max-tokens"));
}

/** The settings as fields of a request. Throws if one cannot be read. */
export function chosenSettings() {
  const fields = {};
  if (byId("model").value) fields.model = byId("model").value;
  for (const [name, input] of inputs) if (input.value !== "") fields[name] = Number(input.value);
  if (byId("thinking").value) fields.thinking = byId("thinking").value === "yes";
  const stop = byId("stop-strings").value.split("\n").filter(Boolean);
  if (stop.length) fields.stop = stop;
  const schema = json("schema", "JSON schema");
  if (schema !== null) fields.grammar = { type: "json_schema", schema };
  const tools = json("tools", "Tools");
  if (tools !== null) fields.tools = tools;
  return fields;
}

function json(id, name) {
  const text = byId(id).value.trim();
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: this is no JSON: ${error.message}`);
  }
}
