// JSON lines from a response's body, as they arrive.

/** Yields one list of values for each chunk that completes at least one line. */
export async function* jsonLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    const values = lines.filter((line) => line.trim()).map((line) => JSON.parse(line));
    if (values.length) yield values;
    if (done) return;
  }
}
