// LangChain's model for OpenAI's API.

import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { answer, converse, LIMIT, TOOLS, URL } from "./conversation.mjs";

const model = new ChatOpenAI({
  model: "default",
  apiKey: "-",
  maxRetries: 0,
  maxTokens: LIMIT,
  streamUsage: true,
  configuration: { baseURL: `${URL}/v1` },
}).bindTools(TOOLS);

async function ask(history, streamed) {
  let message;
  if (streamed) for await (const chunk of await model.stream(history)) message = message?.concat(chunk) ?? chunk;
  else message = await model.invoke(history);
  const said = answer({
    text: message.text,
    calls: message.tool_calls.map(({ id, name, args }) => ({ id, name, arguments: args })),
    reasoning: message.additional_kwargs.reasoning_content,
    id: message.id,
    usage: [message.usage_metadata.input_tokens, message.usage_metadata.output_tokens],
  });
  return [[message], [said]];
}

converse({
  ask,
  user: (text) => new HumanMessage(text),
  results: ([message], text) =>
    message.tool_calls.map(({ id }) => new ToolMessage({ content: text, tool_call_id: id })),
});
