// OpenAI's SDK, Responses.

import OpenAI from "openai";
import { answer, converse, FUNCTION, HEADER, LIMIT, URL } from "./conversation.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "-", maxRetries: 0 });
const tools = [{ type: "function", ...FUNCTION }];

async function ask(history, streamed) {
  const asked = { model: "default", input: history, tools, store: false, max_output_tokens: LIMIT };
  let response, headers; // of a stream, the SDK does not show the latter
  if (streamed) {
    response = await client.responses.stream(asked).finalResponse();
  } else {
    const got = await client.responses.create(asked).withResponse();
    [response, headers] = [got.data, got.response.headers];
  }
  const of = (type) => response.output.filter((item) => item.type === type);
  const said = answer({
    text: response.output_text,
    calls: of("function_call").map(({ call_id, name, arguments: given }) => ({ id: call_id, name, arguments: given })),
    reasoning: of("reasoning").flatMap(({ summary }) => summary.map(({ text }) => text)).join(""),
    id: response.id,
    header: headers?.get(HEADER),
    usage: [response.usage.input_tokens, response.usage.output_tokens],
  });
  return [response.output, [said]];
}

converse({
  ask,
  user: (text) => ({ role: "user", content: text }),
  results: (reply, text) =>
    reply
      .filter((item) => item.type === "function_call")
      .map(({ call_id }) => ({ type: "function_call_output", call_id, output: text })),
});
