// What of a conversation is sent: system prompt first, then turns that alternate. Pure.

export const MAX_SENT = 24; // messages of a conversation that are sent; the oldest are left out

/** The messages to send: the latest, beginning with a question, after the system prompt. */
export function messagesToSend(messages, system = "") {
  let sent = messages.slice(-MAX_SENT);
  const first = sent.findIndex((message) => message.role === "user");
  sent = first === -1 ? [] : sent.slice(first);
  const plain = sent.map(({ role, content }) => ({ role, content }));
  return system.trim() ? [{ role: "system", content: system }, ...plain] : plain;
}

/** A chat's title: the beginning of its first question. */
export function titleOf(messages) {
  const first = messages.find((message) => message.role === "user");
  if (!first) return "New chat";
  const line = first.content.trim().split("\n")[0];
  return line.length > 40 ? `${line.slice(0, 39)}…` : line;
}
