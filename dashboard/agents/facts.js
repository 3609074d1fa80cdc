// What is known of an agent and its engine, as pairs of a name and words. Pure.

import { bytes, compact, count, duration, percent, rate } from "../format.js";

/** The host and the process. */
export function hostFacts(agent) {
  const { facts = null, labels, model } = agent;
  const upstream = model?.upstream ?? null;
  const labelled = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  return [
    ["Connected for", duration(agent.connected_seconds)],
    ["Version", agent.version],
    ["Id", agent.id],
    ["Labels", labelled.join(", ") || "none"],
    ["Adapters", model?.adapters?.join(", ") || null],
    ["Draft model", model?.draft_model ?? null],
    ["Fits as", model?.fit ?? null],
    ["Loaded with", model?.engine ? optionWords(model.engine) : null],
    ["Forwards to", upstream ? `${upstream.kind} at ${upstream.address}` : null],
    ["Model decided by", facts?.is_pinned ? "its own command line" : "the desired state", facts],
    ["Memory", facts?.memory ? bytes(facts.memory) : null],
    ["Cores", facts?.cores ? count(facts.cores) : null],
    ["Devices", facts ? facts.devices.map(deviceWords).join(", ") || "none" : null],
    ["Disk free for models", facts?.disk_free != null ? bytes(facts.disk_free) : null],
    ["Platform", facts?.platform || null],
  ].filter(([, value, needs]) => value !== null && needs !== null);
}

const deviceWords = ({ name, description, memory }) => {
  const facts = [description, memory ? bytes(memory) : ""].filter(Boolean).join(", ");
  return facts ? `${name} (${facts})` : name;
};

const optionWords = (options) =>
  Object.entries(options)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${name} ${name === "host_cache" ? bytes(value) : value}`)
    .join(", ");

/** What the engine did since its model was loaded. */
export function engineFacts({ statistics, models }) {
  if (!statistics) return [];
  const { cells, sequences, disk_cache: disk } = statistics;
  const prompts = statistics.cached_tokens_total + statistics.computed_tokens_total;
  const drafted = statistics.drafted_tokens_total;
  const hasCells = cells.total > 0; // those of another server are unknown
  const share = (part, whole) => (whole ? percent(part / whole) : "–");
  return [
    ["Decodes", `${rate(statistics.decode_tokens_per_second)} tokens/s`],
    ["Reads prompts", `${rate(statistics.prefill_tokens_per_second)} tokens/s`],
    ["At once, on average", atOnce(statistics, models)],
    ["Sequences", `${count(sequences.running)} running, ${count(sequences.waiting)} waiting`],
    ["KV cells", hasCells ? cellWords(cells) : null],
    ["Parked in host memory", hasCells ? `${count(cells.parked)} cells` : null],
    ["Cached on disk", disk ? `${bytes(disk.bytes)}, ${diskWords(disk)}` : null],
    ["Tokens given out", compact(statistics.completion_tokens_total)],
    ["Prompts cached", `${share(statistics.cached_tokens_total, prompts)} of ${compact(prompts)}`],
    ["Drafts accepted", `${share(statistics.accepted_tokens_total, drafted)} of ${compact(drafted)}`],
    ["Preemptions", count(statistics.preemptions_total)],
    ["Stalls", `${count(statistics.stalls_total)} · ${duration(statistics.stall_seconds_total)}`],
    ["Busy", duration(statistics.busy_seconds_total)],
  ].filter(([, value]) => value !== null);
}

/** How many requests are computed together; each model of several has an engine of its own. */
export function atOnce({ average_sequences: average }, models) {
  if (models.length < 2) return rate(average);
  return models.map(({ name, average_sequences: own }) => `${name} ${rate(own)}`).join(", ");
}

const diskWords = ({ read_tokens_total: tokens }) => `${compact(tokens)} tokens read`;

const cellWords = ({ used, kept, total }) =>
  `${count(used)} used and ${count(kept)} cached of ${count(total)}`;
