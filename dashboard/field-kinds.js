// Kinds of fields in forms: how each is shown and read. `read` throws what is wrong. Pure.

/** A list separated by commas. */
export const list = {
  show: (value) => (value ?? []).join(", "),
  read: (text) => text.split(",").map((part) => part.trim()).filter(Boolean),
};

/** Pairs such as `gpu=yes, zone=a`. */
export const pairs = {
  show: (value) => Object.entries(value ?? {}).map(([key, each]) => `${key}=${each}`).join(", "),
  read: (text) =>
    Object.fromEntries(
      list.read(text).map((pair) => {
        const at = pair.indexOf("=");
        if (at < 1) throw new Error(`write it as KEY=VALUE, not ${pair}`);
        return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
      }),
    ),
};

export const text = { show: (value) => value ?? "", read: (value) => value.trim() || null };
export const required = { show: text.show, read: (value) => value.trim() };

/** A whole number, or nothing. */
export const number = {
  show: (value) => (value === null || value === undefined ? "" : String(value)),
  read: (value) => {
    if (value.trim() === "") return null;
    if (!/^-?\d+$/.test(value.trim())) throw new Error("give a whole number, or leave it empty");
    return Number(value);
  },
};

/** What the balancer says of a field, to stand beside it: it calls the field what its API calls it. */
export const besideField = (message) => message.replace(/^`[^`]*`:? +/, "");

/** Seconds, or with a unit; the balancer reads both. */
export const time = {
  show: number.show,
  read: (value) => {
    const given = value.trim();
    if (given === "") return null;
    if (/^\d+(\.\d+)?$/.test(given)) return Number(given);
    if (!/^\d+(\.\d+)?(ms|s|m|h|d)$/.test(given)) throw new Error("write 900, 90s, 15m or 2h");
    return given;
  },
};
