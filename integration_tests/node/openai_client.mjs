// What the official client makes of the fleet's answers, as JSON on standard output.
// Arguments: the base URL, and JSON with the questions.
import OpenAI from "openai";

const [baseURL, questions] = process.argv.slice(2);
const { model, chat, tools } = JSON.parse(questions);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0, timeout: 60_000 });

async function streamedChat(body) {
  const runner = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  const deltas = [];
  runner.on("content", (delta) => deltas.push(delta));
  const { choices, usage } = await runner.finalChatCompletion();
  return { choice: choices[0], joined: deltas.join(""), usage };
}

async function streamedResponse(body) {
  const types = [];
  let last;
  for await (const event of await client.responses.create({ ...body, stream: true })) {
    types.push(event.type);
    last = event;
  }
  return { types, response: last.response };
}

async function embeddings() {
  const asked = { model, input: ["one", "two"] };
  const decoded = await client.embeddings.create(asked); // base64, which the client decodes
  const plain = await client.embeddings.create({ ...asked, encoding_format: "float" });
  return { decoded: decoded.data, plain: plain.data };
}

async function refusal() {
  try {
    await client.chat.completions.create({ ...chat, n: 0 });
  } catch (error) {
    return { name: error.constructor.name, status: error.status, param: error.param };
  }
}

const models = [];
for await (const each of await client.models.list()) models.push(each.id);
const response = { model, input: chat.messages[0].content, temperature: 0 };

console.log(
  JSON.stringify({
    models,
    chat: await client.chat.completions.create(chat),
    streamed: await streamedChat(chat),
    call: await client.chat.completions.create(tools),
    streamedCall: await streamedChat(tools),
    embeddings: await embeddings(),
    response: await client.responses.create(response),
    streamedResponse: await streamedResponse(response),
    refusal: await refusal(),
  }),
);
