// A conversation by lines, as in conversation.py: each on stdin asks for one turn, each on stdout is what the SDK made
// of the answers.

import { createInterface } from "node:readline";

export const URL = process.argv[2];
export const HEADER = "x-burnish-completion-id";
export const NAME = "look_up";
export const DESCRIPTION = "Look up the weather.";
export const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
export const FUNCTION = { name: NAME, description: DESCRIPTION, parameters: PARAMETERS, strict: false };
// Tokens of an answer; the small model may go on for long.
export const LIMIT = 40;
export const TOOLS = [{ type: "function", function: FUNCTION }];

// What an SDK has assembled; what it does not show is left out.
export function answer({ text, calls = [], reasoning, id, header, usage }) {
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

// user(text) makes a message, ask(history, streamed) gives [reply, answers], and results(reply, text) makes what follows
// the calls of an answer.
export async function converse({ user, ask, results }) {
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
