// Asks through LangChain for JavaScript; tells what came as JSON. Argument: the URL.

import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";

const [url] = process.argv.slice(2);
const question = "What is a slot?";
const configuration = { baseURL: `${url}/v1` };
const model = new ChatOpenAI({
  model: "arriero-demo",
  apiKey: "unused",
  configuration,
  temperature: 0,
  maxTokens: 200,
  maxRetries: 0,
});
const look = tool(() => "nothing", {
  name: "look",
  description: "Looks somewhere.",
  schema: z.object({ place: z.enum(["here", "there"]) }),
});

const whole = await model.invoke(question);
let streamed = "";
for await (const part of await model.stream(question)) {
  streamed += part.content;
}
const fact = z.object({ subject: z.string().max(20), is_true: z.boolean() });
const typed = await model.withStructuredOutput(fact, { name: "fact" }).invoke(question);
const called = await model.bindTools([look], { tool_choice: "look" }).invoke(question);
const vectors = new OpenAIEmbeddings({
  model: "arriero-demo",
  apiKey: "unused",
  configuration,
  maxRetries: 0,
});
const vector = await vectors.embedQuery(question);
const calls = called.tool_calls.map((call) => ({ name: call.name, arguments: call.args }));
const told = { answer: whole.content, streamed, fact: typed, calls, width: vector.length };
console.log(JSON.stringify(told));
