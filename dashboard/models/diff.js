// How two desired states differ, model by model. Pure.

/**
 * Lines for a reader: `{kind: "added" | "removed" | "changed", name, details}`; `details` are fields
 * as `{path, before, after}`.
 */
export function difference(before, after) {
  const old = new Map(before.models.map((model) => [model.name, model]));
  const desired = new Map(after.models.map((model) => [model.name, model]));
  const lines = [];
  for (const [name, model] of desired) {
    if (!old.has(name)) lines.push({ kind: "added", name, details: changes({}, model) });
    else {
      const details = changes(old.get(name), model);
      if (details.length) lines.push({ kind: "changed", name, details });
    }
  }
  for (const name of old.keys()) {
    if (!desired.has(name)) lines.push({ kind: "removed", name, details: [] });
  }
  if (lines.length === 0 && isReordered([...old.keys()], [...desired.keys()])) {
    lines.push({ kind: "changed", name: "the order", details: [] });
  }
  return lines;
}

const isReordered = (before, after) => before.join("\n") !== after.join("\n");

function changes(before, after) {
  const [old, now] = [flat(before), flat(after)];
  const paths = [...new Set([...old.keys(), ...now.keys()])].sort();
  return paths
    .filter((path) => words(old.get(path)) !== words(now.get(path)))
    .map((path) => ({ path, before: words(old.get(path)), after: words(now.get(path)) }));
}

/** Leaves by path; what is empty counts as not given. */
function flat(value, prefix = "", into = new Map()) {
  for (const [key, each] of Object.entries(value)) {
    const path = prefix + key;
    if (each !== null && typeof each === "object" && !Array.isArray(each)) {
      flat(each, `${path}.`, into);
    } else into.set(path, each);
  }
  return into;
}

function words(value) {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return value.length ? JSON.stringify(value) : "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
