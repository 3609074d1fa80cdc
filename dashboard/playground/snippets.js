// A request as a command and as a program. Pure.

/** For a shell: quoted so that nothing in it is expanded. */
export function asCurl(url, body) {
  const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${url}/api/v1/generate \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'`;
}

/** For Python, with the project's own client. */
export function asPython(url, body) {
  const given = Object.entries(body).map(([name, value]) => `        ${name}=${literal(value)},\n`);
  return [
    "import asyncio",
    "",
    "from arriero.client import Client",
    "",
    "",
    "async def main() -> None:",
    `    async with Client(${literal(url)}) as client, client.stream(`,
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
