// A request as a command and as a program. Pure. Where a key is needed, both read it from the
// environment: a page never writes one down.

/** Stands for a picture: a whole one is longer than a shell takes. */
export const PICTURE = "data:image/png;base64,…";

/** For a shell: quoted so that nothing is expanded but the key's variable. */
export function asCurl(url, body, needsKey) {
  const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  const lines = [`curl -N ${url}/api/v1/generate`];
  if (needsKey) lines.push(CURL_KEY);
  return [...lines, "-H 'Content-Type: application/json'", `-d '${json}'`].join(" \\\n  ");
}

/** How curl shows a key. */
export const CURL_KEY = '-H "Authorization: Bearer $ARRIERO_KEY"';

const PYTHON_KEY = ', key=os.environ["ARRIERO_KEY"]';

/** For Python, with the project's own client. */
export function asPython(url, body, needsKey) {
  const given = Object.entries(body).map(([name, value]) => `        ${name}=${literal(value)},\n`);
  return [
    "import asyncio",
    ...(needsKey ? ["import os"] : []),
    "",
    "from arriero.client import Client",
    "",
    "",
    "async def main() -> None:",
    `    async with Client(${literal(url)}${needsKey ? PYTHON_KEY : ""}) as client, client.stream(`,
    `${given.join("")}    ) as events:`,
    "        async for event in events:",
    '            print(getattr(event, "text", ""), end="", flush=True)',
    "",
    "",
    "asyncio.run(main())",
    "",
  ].join("\n");
}

/** A JSON value as Python writes it; JSON's strings are Python's as well. */
function literal(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    const members = Object.entries(value).map(([key, each]) => `${literal(key)}: ${literal(each)}`);
    return `{${members.join(", ")}}`;
  }
  return JSON.stringify(value);
}
