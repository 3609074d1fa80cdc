// The fields of a new key: how each is read from the form. Pure.

import { list, number, pairs, required, time } from "../field-kinds.js";

/** What each role may, in the order in which they are offered. */
export const ROLES = {
  inference: "call models",
  viewer: "see the fleet",
  operator: "steer the fleet, call models",
  admin: "all that, and change the desired state and keys",
  agent: "join as an agent",
};
export const PRIORITIES = ["interactive", "default", "batch"];
const UNSAID = { "": "default", interactive: "", batch: "" };

/** `name` is that of the balancer's field; with `roles` it is for keys of these alone. */
export const FIELDS = [
  { name: "name", label: "Name", kind: required, hint: "ci, ana-laptop" },
  { name: "role", label: "Role", kind: required, choices: ROLES },
  { name: "expires", label: "Expires after", kind: time, hint: "never; 90d, 12h" },
  { name: "models", label: "Models", kind: list, hint: "all" },
  { name: "labels", label: "Labels it may have", kind: pairs, hint: "any; gpu=yes", roles: ["agent"] },
  { name: "requests_per_minute", label: "Requests a minute", kind: number, isLimit: true },
  { name: "tokens_per_minute", label: "Tokens a minute", kind: number, isLimit: true },
  { name: "max_concurrent", label: "Requests at once", kind: number, isLimit: true },
  { name: "max_queued", label: "Requests waiting", kind: number, isLimit: true },
  { name: "max_tokens", label: "Tokens of an answer", kind: number, isLimit: true },
  { name: "priority", label: "Highest priority", kind: required, choices: PRIORITIES, isLimit: true },
  { name: "default_priority", label: "Priority of requests that name none", kind: required, choices: UNSAID, isLimit: true },
];

/** Whether keys of a role have this field. */
export const isOf = (field, role) => field.roles?.includes(role) ?? true;

/** The body of the call that makes the key, of `texts` by name; what is empty is left out.
    Throws an error with the `field`. */
export function specOf(texts) {
  const spec = {};
  for (const field of FIELDS.filter((each) => isOf(each, texts.role))) {
    const value = read(field, texts[field.name]);
    const isEmpty = value === null || value === "" || Object.keys(Object(value)).length === 0;
    if (typeof value === "number" || !isEmpty) spec[field.name] = value;
  }
  return spec;
}

function read({ name, kind }, text) {
  try {
    return kind.read(text);
  } catch (error) {
    error.field = name;
    throw error;
  }
}
