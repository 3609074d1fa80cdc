// What is known of an agent and its engine, as pairs of a name and words. Pure.

import * as formats from "../format.js";
import { AGENT_FIGURES, FIGURES } from "./figures.js";

const { bytes, compact, percent, rate } = formats;

/** The host and the process. */
export function hostFacts(agent) {
  const { facts = null, labels, model } = agent;
  const upstream = model?.upstream ?? null;
  const labelled = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  return [
    ...lines(AGENT_FIGURES, agent),
    ["Version", agent.version],
    ["Id", agent.id],
    ["Labels", labelled.join(", ") || "none"],
    ["Adapters", model?.adapters?.join(", ") || null],
    ["Draft model", model?.draft_model ?? null],
    ["Fits as", model?.fit ?? null],
    ["Loaded with", model?.engine ? optionWords(model.engine) : null],
    ["Forwards to", upstream ? `${upstream.kind} at ${upstream.address}` : null],
    ["Model decided by", facts?.is_pinned ? "its own command line" : "the desired state", facts],
    ["Devices", facts ? facts.devices.map(deviceWords).join(", ") || "none" : null],
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
  return lines(FIGURES, statistics, models);
}

const lines = (figures, report, models) =>
  figures
    .filter(({ needs, known }) => (!needs || valueAt(report, needs)) && (!known || valueAt(report, known) !== null))
    .map(({ title, words }) => [title, words ? filled(words, report) : WRITTEN[title](report, models)]);

export const valueAt = (report, path) =>
  path.split(".").reduce((value, name) => value?.[name] ?? null, report);

/** `words` with a value of the report for each `{path|format}`. */
export const filled = (words, report) =>
  words.replace(/\{([\w.]+)\|(\w+)\}/g, (_, path, format) => formats[format](valueAt(report, path)));

/** Lines that say more than values. */
const WRITTEN = {
  "At once, on average": atOnce,
  "Prompts cached": ({ cached_tokens_total: cached, computed_tokens_total: computed }) =>
    shareWords(cached, cached + computed),
  "Drafts accepted": ({ accepted_tokens_total: accepted, drafted_tokens_total: drafted }) =>
    shareWords(accepted, drafted),
};

const shareWords = (part, whole) => `${whole ? percent(part / whole) : "–"} of ${compact(whole)}`;

/** How many requests are computed together; each model of several has an engine of its own. */
export function atOnce({ average_sequences: average }, models) {
  if (models.length < 2) return rate(average);
  return models.map(({ name, average_sequences: own }) => `${name} ${rate(own)}`).join(", ");
}
