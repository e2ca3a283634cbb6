// OpenAI's SDK, chat completions.

import OpenAI from "openai";
import { answer, converse, HEADER, LIMIT, TOOLS, URL } from "./conversation.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "-", maxRetries: 0 });

async function ask(history, streamed) {
  const asked = { model: "default", messages: history, tools: TOOLS, max_tokens: LIMIT };
  let completion, headers; // of a stream, the SDK does not show the latter
  if (streamed) {
    const more = { stream_options: { include_usage: true } };
    completion = await client.chat.completions.stream({ ...asked, ...more }).finalChatCompletion();
  } else {
    const { data, response } = await client.chat.completions.create(asked).withResponse();
    [completion, headers] = [data, response.headers];
  }
  const { message } = completion.choices[0];
  const said = answer({
    text: message.content,
    calls: message.tool_calls?.map(({ id, function: made }) => ({ id, ...made })),
    // Of what is not in its types, the SDK keeps the last piece of a stream only.
    reasoning: streamed ? null : message.reasoning_content,
    id: completion.id,
    header: headers?.get(HEADER),
    usage: [completion.usage.prompt_tokens, completion.usage.completion_tokens],
  });
  return [[message], [said]];
}

converse({
  ask,
  user: (text) => ({ role: "user", content: text }),
  results: ([message], text) =>
    message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: text })),
});
