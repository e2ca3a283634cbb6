// Google's SDK.

import { GoogleGenAI } from "@google/genai";
import { answer, converse, DESCRIPTION, HEADER, NAME, PARAMETERS, URL } from "./conversation.mjs";

const client = new GoogleGenAI({ apiKey: "-", httpOptions: { baseUrl: URL } });
const declaration = { name: NAME, description: DESCRIPTION, parametersJsonSchema: PARAMETERS };
const config = { tools: [{ functionDeclarations: [declaration] }] };

async function ask(history, streamed) {
  const asked = { model: "default", contents: history, config };
  const whole = [];
  if (streamed) for await (const part of await client.models.generateContentStream(asked)) whole.push(part);
  else whole.push(await client.models.generateContent(asked));
  const contents = whole.map(({ candidates }) => candidates[0].content);
  const parts = contents.flatMap(({ parts }) => parts ?? []);
  const texts = (thought) => parts.filter((part) => part.text && !part.thought !== thought).map(({ text }) => text);
  const calls = parts.flatMap(({ functionCall }) => functionCall ?? []);
  const usage = whole.at(-1).usageMetadata;
  const said = answer({
    text: texts(false).join(""),
    calls: calls.map(({ id, name, args }) => ({ id, name, arguments: args })),
    reasoning: texts(true).join(""),
    id: whole[0].responseId,
    header: whole[0].sdkHttpResponse?.headers?.[HEADER],
    usage: [usage.promptTokenCount, usage.candidatesTokenCount],
  });
  return [contents, [said]];
}

converse({
  ask,
  user: (text) => ({ role: "user", parts: [{ text }] }),
  results: (reply, text) => {
    const calls = reply.flatMap(({ parts }) => parts ?? []).flatMap(({ functionCall }) => functionCall ?? []);
    const given = calls.map(({ id, name }) => ({ functionResponse: { id, name, response: { output: text } } }));
    return [{ role: "user", parts: given }];
  },
});
