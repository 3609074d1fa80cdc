// What of a conversation is sent: system prompt first, then turns that alternate. Pure.

export const MAX_SENT = 24; // messages of a conversation that are sent; the oldest are left out

/**
 * The messages to send: the latest, beginning with a question, after the system prompt. `urlOf`
 * gives the data URI of a picture; one that has none is left out.
 */
export function messagesToSend(messages, system = "", urlOf = () => undefined) {
  let sent = messages.slice(-MAX_SENT);
  const first = sent.findIndex((message) => message.role === "user");
  sent = first === -1 ? [] : sent.slice(first);
  const plain = sent.map(({ role, content, pictures = [] }) => {
    const urls = pictures.map(urlOf).filter(Boolean);
    return { role, content: urls.length ? withPictures(content, urls) : content };
  });
  return system.trim() ? [{ role: "system", content: system }, ...plain] : plain;
}

function withPictures(text, urls) {
  const parts = urls.map((url) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

/** A chat's title: the beginning of its first question. */
export function titleOf(messages) {
  const first = messages.find((message) => message.role === "user");
  if (!first) return "Nothing asked yet";
  const line = first.content.trim().split("\n")[0] || "A picture";
  return line.length > 40 ? `${line.slice(0, 39)}…` : line;
}
