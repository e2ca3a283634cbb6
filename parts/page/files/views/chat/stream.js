// One request for an answer, and its stream of events.
import { ApiError, answered } from "../../api.js";
import { signed } from "../../session.js";

// `longest`: tokens of the answer; 0: as many as it has. Calls `onStart(id)` with the completion's ID, and `onText({add, thought})` for each piece. Returns why the answer ended:
// "stop", "length" and so on. Throws ApiError, and AbortError once `signal` says so.
export async function ask({ model, messages, longest, session, signal, onStart, onText }) {
  const response = await answered("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", "x-burnish-session": session, ...signed() },
    body: JSON.stringify({ model, messages, stream: true, ...(longest ? { max_tokens: longest } : {}) }),
    signal,
  });
  onStart(response.headers.get("x-burnish-completion-id"));
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return whole(await response.json(), onText);
  let finish = null;
  let done = false;
  for await (const event of events(response.body)) {
    if (event === "[DONE]") {
      done = true;
      continue;
    }
    const piece = parsed(event);
    if (piece.error) throw new ApiError(response.status, piece.error.code, piece.error.message ?? "The model stopped with an error.");
    const choice = piece.choices?.[0];
    if (choice?.delta) onText(wordsOf(choice.delta));
    finish = choice?.finish_reason ?? finish;
  }
  if (!finish && !done) throw new ApiError(0, "cut", CUT);
  return finish ?? "stop";
}

const CUT = "The connection broke off before the answer ended.";

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { done, value = "" } = await reader.read().catch(broken);
    const lines = (rest + value + (done ? "\n" : "")).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("data:")) yield line.slice("data:".length).trim();
    }
    if (done) return;
  }
}

function broken(error) {
  throw error.name === "AbortError" ? error : new ApiError(0, "cut", CUT);
}

function parsed(event) {
  try {
    return JSON.parse(event) ?? {};
  } catch {
    return {}; // what isn't JSON is no text either; burnish's log has it
  }
}

// An upstream may answer at once though it was asked for a stream.
function whole({ choices }, onText) {
  onText(wordsOf(choices?.[0]?.message ?? {}));
  return choices?.[0]?.finish_reason ?? "stop";
}

function wordsOf({ content, refusal: refused, reasoning_content: reasoning, reasoning: other }) {
  const text = (part) => (typeof part === "string" ? part : "");
  return { add: text(content) || text(refused), thought: text(reasoning) || text(other) };
}
