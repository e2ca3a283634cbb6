// One program for each SDK of Node, run as `programs.mjs URL SDK …`. The conversation is that of conversation.py.

import { createInterface } from "node:readline";

const [URL, SDK, ...ARGUMENTS] = process.argv.slice(2);
const HEADER = "x-burnish-completion-id";
const NAME = "look_up";
const DESCRIPTION = "Look up the weather.";
const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
const FUNCTION = { name: NAME, description: DESCRIPTION, parameters: PARAMETERS, strict: false };
// Tokens of an answer; the small model may go on for long.
const LIMIT = 40;
const TOOLS = [{ type: "function", function: FUNCTION }];
const OPENAI = { baseURL: `${URL}/v1`, apiKey: "-", maxRetries: 0 };

// What an SDK has assembled; what it does not show is left out.
function answer({ text, calls = [], reasoning, id, header, usage }) {
  const named = calls.map(({ id, name, arguments: given }) => ({
    id: id ?? null,
    name,
    arguments: typeof given === "string" ? JSON.parse(given) : given,
  }));
  return {
    text: text ?? "",
    calls: named,
    reasoning: reasoning || null,
    id: id ?? null,
    header: header ?? null,
    usage: usage ?? null,
  };
}

// ask(history, streamed) gives [reply, answers], results(reply, text) makes what follows the calls of an answer, and
// user(text) makes a message.
async function converse({ ask, results, user = (text) => ({ role: "user", content: text }) }) {
  const entries = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const turn = JSON.parse(line);
    const of = [...turn.of];
    if ("user" in turn) of.push(entries.push([user(turn.user)]) - 1);
    if ("result" in turn) of.push(entries.push(results(entries[of.at(-1)], turn.result)) - 1);
    let said;
    try {
      const [reply, answers] = await ask(of.flatMap((each) => entries[each]), turn.stream);
      said = { answers, of: [...of, entries.push(reply) - 1] };
    } catch (error) {
      said = { error: failure(error) };
    }
    process.stdout.write(JSON.stringify(said) + "\n");
  }
}

function failure(error) {
  const headers = error.headers ?? error.responseHeaders ?? {};
  return {
    // Some name their errors only by their class, others only by their name.
    type: error.name === "Error" ? error.constructor.name : error.name,
    status: error.status ?? error.statusCode ?? error.status_code ?? null,
    retry_after: headers.get?.("retry-after") ?? headers["retry-after"] ?? null,
    message: `${error.stack}`,
  };
}

async function all(parts) {
  const found = [];
  for await (const part of parts) found.push(part);
  return found;
}

const sdks = {
  async openai_chat() {
    const { default: OpenAI } = await import("openai");
    const { completions } = new OpenAI(OPENAI).chat;
    const settings = { model: "default", tools: TOOLS, max_tokens: LIMIT };
    return {
      async ask(messages, streamed) {
        let completion, headers; // of a stream, the SDK does not show the latter
        if (streamed) {
          const asked = { ...settings, messages, stream_options: { include_usage: true } };
          completion = await completions.stream(asked).finalChatCompletion();
        } else {
          const { data, response } = await completions.create({ ...settings, messages }).withResponse();
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
      },
      results: ([message], text) =>
        message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: text })),
    };
  },

  async openai_responses() {
    const { default: OpenAI } = await import("openai");
    const { responses } = new OpenAI(OPENAI);
    const tools = [{ type: "function", ...FUNCTION }];
    const callsOf = (output) => output.filter(({ type }) => type === "function_call");
    return {
      async ask(history, streamed) {
        const limits = { max_output_tokens: LIMIT, temperature: 0 };
        const asked = { model: "default", input: history, tools, store: false, ...limits };
        let response, headers; // of a stream, the SDK does not show the latter
        if (streamed) {
          response = await responses.stream(asked).finalResponse();
        } else {
          const got = await responses.create(asked).withResponse();
          [response, headers] = [got.data, got.response.headers];
        }
        const { output, usage } = response;
        const thoughts = output.filter(({ type }) => type === "reasoning").flatMap(({ summary }) => summary);
        const said = answer({
          text: response.output_text,
          calls: callsOf(output).map(({ call_id, name, arguments: given }) => ({ id: call_id, name, arguments: given })),
          reasoning: thoughts.map(({ text }) => text).join(""),
          id: response.id,
          header: headers?.get(HEADER),
          usage: [usage.input_tokens, usage.output_tokens],
        });
        return [output, [said]];
      },
      results: (reply, text) =>
        callsOf(reply).map(({ call_id }) => ({ type: "function_call_output", call_id, output: text })),
    };
  },

  async anthropic_messages() {
    const { default: Anthropic } = await import("@anthropic-ai/sdk");
    const { messages } = new Anthropic({ baseURL: URL, apiKey: "-", maxRetries: 0 });
    const tools = [{ name: NAME, description: DESCRIPTION, input_schema: PARAMETERS }];
    const blocks = ({ content }, type) => content.filter((block) => block.type === type);
    return {
      async ask(history, streamed) {
        const asked = { model: "default", max_tokens: LIMIT, messages: history, tools };
        let message, headers;
        if (streamed) {
          const stream = messages.stream(asked);
          headers = (await stream.withResponse()).response.headers;
          message = await stream.finalMessage();
        } else {
          const { data, response } = await messages.create(asked).withResponse();
          [message, headers] = [data, response.headers];
        }
        const { usage } = message;
        const cached = (usage.cache_creation_input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0);
        const said = answer({
          text: blocks(message, "text").map(({ text }) => text).join(""),
          calls: blocks(message, "tool_use").map(({ id, name, input }) => ({ id, name, arguments: input })),
          reasoning: blocks(message, "thinking").map(({ thinking }) => thinking).join(""),
          id: message.id,
          header: headers.get(HEADER),
          usage: [usage.input_tokens + cached, usage.output_tokens],
        });
        return [[{ role: "assistant", content: message.content }], [said]];
      },
      results: ([message], text) => {
        const calls = blocks(message, "tool_use");
        const given = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: text }));
        return [{ role: "user", content: given }];
      },
    };
  },

  // It shows neither ids nor headers by itself.
  async ollama_chat() {
    const { Ollama } = await import("ollama");
    let header;
    const seen = async (...asked) => {
      const response = await fetch(...asked);
      header = response.headers.get(HEADER);
      return response;
    };
    const client = new Ollama({ host: URL, fetch: seen });
    return {
      async ask(messages, stream) {
        const given = await client.chat({ model: "default", messages, tools: TOOLS, stream });
        const parts = stream ? await all(given) : [given];
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
      },
      results: ([message], text) =>
        message.tool_calls.map((call) => ({ role: "tool", tool_name: call.function.name, content: text })),
    };
  },

  async google_genai() {
    const { GoogleGenAI } = await import("@google/genai");
    const { models } = new GoogleGenAI({ apiKey: "-", httpOptions: { baseUrl: URL } });
    const declaration = { name: NAME, description: DESCRIPTION, parametersJsonSchema: PARAMETERS };
    const config = { tools: [{ functionDeclarations: [declaration] }] };
    const partsOf = (contents) => contents.flatMap(({ parts }) => parts ?? []);
    const callsOf = (contents) => partsOf(contents).flatMap(({ functionCall }) => functionCall ?? []);
    return {
      async ask(history, streamed) {
        const asked = { model: "default", contents: history, config };
        const whole = streamed
          ? await all(await models.generateContentStream(asked))
          : [await models.generateContent(asked)];
        const contents = whole.map(({ candidates }) => candidates[0].content);
        const texts = (thought) =>
          partsOf(contents).filter((part) => part.text && !part.thought !== thought).map(({ text }) => text);
        const usage = whole.at(-1).usageMetadata;
        const said = answer({
          text: texts(false).join(""),
          calls: callsOf(contents).map(({ id, name, args }) => ({ id, name, arguments: args })),
          reasoning: texts(true).join(""),
          id: whole[0].responseId,
          header: whole[0].sdkHttpResponse?.headers?.[HEADER],
          usage: [usage.promptTokenCount, usage.candidatesTokenCount],
        });
        return [contents, [said]];
      },
      user: (text) => ({ role: "user", parts: [{ text }] }),
      results: (reply, text) => {
        const response = { output: text };
        return [{ role: "user", parts: callsOf(reply).map(({ id, name }) => ({ functionResponse: { id, name, response } })) }];
      },
    };
  },

  // LangChain's model for OpenAI's API.
  async langchain_chat() {
    const { HumanMessage, ToolMessage } = await import("@langchain/core/messages");
    const { ChatOpenAI } = await import("@langchain/openai");
    const { baseURL, ...settings } = OPENAI;
    const more = { maxTokens: LIMIT, streamUsage: true, configuration: { baseURL } };
    const model = new ChatOpenAI({ model: "default", ...settings, ...more }).bindTools(TOOLS);
    return {
      async ask(history, streamed) {
        const parts = streamed ? await all(await model.stream(history)) : [await model.invoke(history)];
        const message = parts.reduce((whole, part) => whole.concat(part));
        const said = answer({
          text: message.text,
          calls: message.tool_calls.map(({ id, name, args }) => ({ id, name, arguments: args })),
          reasoning: message.additional_kwargs.reasoning_content,
          id: message.id,
          usage: [message.usage_metadata.input_tokens, message.usage_metadata.output_tokens],
        });
        return [[message], [said]];
      },
      user: (text) => new HumanMessage(text),
      results: ([message], text) =>
        message.tool_calls.map(({ id }) => new ToolMessage({ content: text, tool_call_id: id })),
    };
  },

  // Vercel's, with the provider for servers like OpenAI's, OpenAI's own (Responses), or Anthropic's.
  async ai_sdk(kind, store) {
    const { generateText, jsonSchema, streamText, tool } = await import("ai");
    const settings = { baseURL: `${URL}/v1`, apiKey: "-" };
    const providers = {
      compatible: async () =>
        (await import("@ai-sdk/openai-compatible")).createOpenAICompatible({
          ...settings,
          name: "burnish",
          includeUsage: true,
        }),
      openai: async () => (await import("@ai-sdk/openai")).createOpenAI(settings),
      anthropic: async () => (await import("@ai-sdk/anthropic")).createAnthropic(settings),
    };
    const provider = await providers[kind]();
    const fixed = {
      model: provider("default"),
      tools: { [NAME]: tool({ description: DESCRIPTION, inputSchema: jsonSchema(PARAMETERS) }) },
      maxOutputTokens: LIMIT,
      maxRetries: 0,
      // Else it names the items of earlier answers instead of sending them, for a server that keeps them.
      providerOptions: { openai: { store: store === "store" } },
    };
    return {
      async ask(history, streamed) {
        const asked = { ...fixed, messages: history };
        const result = streamed ? streamText({ ...asked, onError: () => {} }) : await generateText(asked);
        if (streamed) for await (const part of result.fullStream) if (part.type === "error") throw part.error;
        const { id, headers, messages } = await result.response;
        const usage = await result.usage;
        const calls = await result.toolCalls;
        const said = answer({
          text: await result.text,
          calls: calls.map(({ toolCallId, toolName, input }) => ({ id: toolCallId, name: toolName, arguments: input })),
          reasoning: await result.reasoningText,
          id,
          header: headers[HEADER],
          usage: [usage.inputTokens, usage.outputTokens],
        });
        return [messages, [said]];
      },
      results: (reply, text) => {
        const calls = reply.flatMap(({ content }) => content).filter((part) => part.type === "tool-call");
        const output = { type: "text", value: text };
        const given = calls.map(({ toolCallId, toolName }) => ({ type: "tool-result", toolCallId, toolName, output }));
        return [{ role: "tool", content: given }];
      },
    };
  },
};

converse(await sdks[SDK](...ARGUMENTS));
