// Vercel's AI SDK, with the provider for servers like OpenAI's, OpenAI's own (Responses), or Anthropic's.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { answer, converse, DESCRIPTION, HEADER, LIMIT, NAME, PARAMETERS, URL } from "./conversation.mjs";

const settings = { baseURL: `${URL}/v1`, apiKey: "-" };
const providers = {
  compatible: () => createOpenAICompatible({ ...settings, name: "burnish", includeUsage: true }),
  openai: () => createOpenAI(settings),
  anthropic: () => createAnthropic(settings),
};
const [kind, ...more] = process.argv.slice(3);
const provider = providers[kind]();
// Else it names the items of earlier answers instead of sending them, for a server that keeps them.
const providerOptions = { openai: { store: more.includes("store") } };
const look = tool({ description: DESCRIPTION, inputSchema: jsonSchema(PARAMETERS) });

async function ask(history, streamed) {
  const asked = {
    model: provider("default"),
    messages: history,
    tools: { [NAME]: look },
    maxOutputTokens: LIMIT,
    maxRetries: 0,
    providerOptions,
  };
  const result = streamed ? streamText({ ...asked, onError: () => {} }) : await generateText(asked);
  if (streamed) for await (const part of result.fullStream) if (part.type === "error") throw part.error;
  const { id, headers, messages } = await result.response;
  const usage = await result.usage;
  const said = answer({
    text: await result.text,
    calls: (await result.toolCalls).map(({ toolCallId, toolName, input }) => ({
      id: toolCallId,
      name: toolName,
      arguments: input,
    })),
    reasoning: await result.reasoningText,
    id,
    header: headers[HEADER],
    usage: [usage.inputTokens, usage.outputTokens],
  });
  return [messages, [said]];
}

converse({
  ask,
  user: (text) => ({ role: "user", content: text }),
  results: (reply, text) => {
    const calls = reply.flatMap(({ content }) => content).filter((part) => part.type === "tool-call");
    const output = { type: "text", value: text };
    return [
      {
        role: "tool",
        content: calls.map(({ toolCallId, toolName }) => ({ type: "tool-result", toolCallId, toolName, output })),
      },
    ];
  },
});
