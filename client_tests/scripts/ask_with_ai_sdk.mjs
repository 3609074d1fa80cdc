// Asks through Vercel's AI SDK, by four providers; tells what came as JSON. Argument: the URL.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url] = process.argv.slice(2);
const prompt = "What is a slot?";
const common = { prompt, temperature: 0, maxOutputTokens: 200, maxRetries: 0 };
const compatible = createOpenAICompatible({
  name: "arriero",
  baseURL: `${url}/v1`,
  supportsStructuredOutputs: true,
})("arriero-demo");
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: "unused" })("arriero-demo");
const fact = z.object({ subject: z.string().max(20), is_true: z.boolean() });
const look = tool({ inputSchema: z.object({ place: z.enum(["here", "there"]) }) });

const { text } = await generateText({ ...common, model: compatible });
let streamed = "";
for await (const part of streamText({ ...common, model: compatible }).textStream) {
  streamed += part;
}
const typed = await generateText({
  ...common,
  model: compatible,
  output: Output.object({ schema: fact }),
});
const calls = [];
for (const model of [compatible, openai.chat("arriero-demo"), openai.responses("arriero-demo"), anthropic]) {
  const forced = await generateText({
    ...common,
    model,
    tools: { look },
    toolChoice: { type: "tool", toolName: "look" },
  });
  calls.push(...forced.toolCalls.map((call) => ({ name: call.toolName, arguments: call.input })));
}
if (calls.length !== 4) {
  throw new Error(`one call of each: ${JSON.stringify(calls)}`);
}
// The default provider refers to items of earlier answers, which the server stored.
const responses = openai("arriero-demo");
const user = { role: "user", content: prompt };
const { prompt: _, ...later } = { ...common, model: responses };
const first = await generateText({ ...later, messages: [user] });
const second = await generateText({ ...later, messages: [user, ...first.response.messages, user] });
const looped = await generateText({
  ...later,
  messages: [user],
  tools: { look: tool({ inputSchema: look.inputSchema, execute: async () => "nothing" }) },
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
  stopWhen: stepCountIs(2),
});
const turns = [first, second, ...looped.steps].map((turn) => turn.finishReason);
console.log(JSON.stringify({ answer: text, streamed, fact: typed.output, calls, turns }));
