// Ollama's SDK, which shows neither ids nor headers by itself.

import { Ollama } from "ollama";
import { answer, converse, HEADER, TOOLS, URL } from "./conversation.mjs";

let header;
const client = new Ollama({
  host: URL,
  fetch: async (...asked) => {
    const response = await fetch(...asked);
    header = response.headers.get(HEADER);
    return response;
  },
});

async function ask(history, streamed) {
  const given = await client.chat({ model: "default", messages: history, tools: TOOLS, stream: streamed });
  const parts = streamed ? [] : [given];
  if (streamed) for await (const part of given) parts.push(part);
  const joined = (name) => parts.map(({ message }) => message[name] ?? "").join("");
  const message = {
    role: "assistant",
    content: joined("content"),
    thinking: joined("thinking"),
    tool_calls: parts.flatMap(({ message }) => message.tool_calls ?? []),
  };
  const last = parts.at(-1);
  const said = answer({
    text: message.content,
    calls: message.tool_calls.map((call) => call.function),
    reasoning: message.thinking,
    header,
    usage: [last.prompt_eval_count, last.eval_count],
  });
  return [[message], [said]];
}

converse({
  ask,
  user: (text) => ({ role: "user", content: text }),
  results: ([message], text) =>
    message.tool_calls.map((call) => ({ role: "tool", tool_name: call.function.name, content: text })),
});
