// Anthropic's SDK.

import Anthropic from "@anthropic-ai/sdk";
import { answer, converse, DESCRIPTION, HEADER, LIMIT, NAME, PARAMETERS, URL } from "./conversation.mjs";

const client = new Anthropic({ baseURL: URL, apiKey: "-", maxRetries: 0 });
const tools = [{ name: NAME, description: DESCRIPTION, input_schema: PARAMETERS }];

async function ask(history, streamed) {
  const asked = { model: "default", max_tokens: LIMIT, messages: history, tools };
  let message, headers;
  if (streamed) {
    const stream = client.messages.stream(asked);
    headers = (await stream.withResponse()).response.headers;
    message = await stream.finalMessage();
  } else {
    const { data, response } = await client.messages.create(asked).withResponse();
    [message, headers] = [data, response.headers];
  }
  const of = (type) => message.content.filter((block) => block.type === type);
  const { usage } = message;
  const cached = (usage.cache_creation_input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0);
  const said = answer({
    text: of("text").map(({ text }) => text).join(""),
    calls: of("tool_use").map(({ id, name, input }) => ({ id, name, arguments: input })),
    reasoning: of("thinking").map(({ thinking }) => thinking).join(""),
    id: message.id,
    header: headers.get(HEADER),
    usage: [usage.input_tokens + cached, usage.output_tokens],
  });
  return [[{ role: "assistant", content: message.content }], [said]];
}

converse({
  ask,
  user: (text) => ({ role: "user", content: text }),
  results: ([message], text) => {
    const calls = message.content.filter((block) => block.type === "tool_use");
    const given = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: text }));
    return [{ role: "user", content: given }];
  },
});
