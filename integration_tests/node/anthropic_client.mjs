// What the official client makes of the fleet's answers: one JSON object, the last line on standard
// output. While its tool runs it says "waiting" and goes on when it reads a line.
// Arguments: the fleet's address, that of a balancer whose queue is full, JSON with the questions.
import readline from "node:readline";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";

const [baseURL, full, questions] = process.argv.slice(2);
const { chat, calling, schema } = JSON.parse(questions);
const sent = [];

async function noted(url, init) {
  const response = await fetch(url, init);
  const { thread, messages, tools } = init.body ? JSON.parse(init.body) : {};
  sent.push({
    status: response.status,
    thread: thread?.type,
    messages: messages?.length,
    tools: tools?.length,
    threadId: thread?.previous_message_id,
  });
  return response;
}

function connected(address, maxRetries = 0) {
  return new Anthropic({ baseURL: address, apiKey: "none", maxRetries, timeout: 60_000, fetch: noted });
}

const client = connected(baseURL);

async function refused(ask) {
  const before = sent.length;
  try {
    await ask();
  } catch (error) {
    return {
      name: error.constructor.name,
      status: error.status,
      type: error.type ?? error.error?.error?.type,
      hasId: Boolean(error.requestID),
      message: error.message,
      attempts: sent.length - before,
    };
  }
}

async function streamed(body) {
  const stream = client.messages.stream(body);
  const texts = [];
  stream.on("text", (text) => texts.push(text));
  return { message: await stream.finalMessage(), joined: texts.join("") };
}

async function counted({ max_tokens, temperature, ...body }) {
  return client.messages.countTokens(body);
}

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ran() {
  console.log("waiting");
  await lines.next();
  return "4";
}

async function threaded({ tools, ...body }) {
  sent.length = 0;
  const run = tools.map(({ input_schema, ...tool }) => betaTool({ ...tool, inputSchema: input_schema, run: ran }));
  const ids = [];
  for await (const message of client.beta.messages.toolRunner({ ...body, tools: run, max_iterations: 2 })) {
    ids.push(message.id);
  }
  return { ids, sent: [...sent] };
}

const image = { type: "image", source: { type: "url", url: "http://127.0.0.1/x.png" } };

const told = {
  message: await client.messages.create(chat),
  streamed: await streamed(chat),
  parsed: await client.messages.parse({ ...chat, output_config: { format: jsonSchemaOutputFormat(schema) } }),
  counted: await counted(chat),
  missing: await refused(() => connected(baseURL, 1).messages.create({ ...chat, model: "no-such-model" })),
  image: await refused(() => client.messages.create({ ...chat, messages: [{ role: "user", content: [image] }] })),
  overloaded: await refused(() => connected(full, 1).messages.create(chat)),
  compacted: await client.beta.messages.create({ ...chat, compaction: { type: "summarize" } }),
  threaded: await threaded(calling),
};
lines.return?.();
console.log(JSON.stringify(told));
process.exit(0);
