// Reactions become ratings: 👍 or 👎 on a message in a channel rates the answer in it, and only from whom it was for.
//
// OpenClaw has no event for a reaction. It notes it for the agent's next turn, with the ids of message and person; these
// notes are read here, and left where they are. Which answer is in a message is remembered when it is sent.
import { readFileSync, writeFileSync } from "node:fs";
import { peekSystemEventEntries } from "openclaw/plugin-sdk/system-event-runtime";

const RATINGS = { "👍": "good", "+1": "good", thumbsup: "good", "👎": "bad", "-1": "bad", thumbsdown: "bad" };
const TONES = /[\u{1f3fb}-\u{1f3ff}\ufe0f]|::skin-tone-\d/gu;
const LOOK_MS = 1000;
const LIMIT_MS = 10_000; // of one request to burnish
const PATIENCE_MS = 30_000; // who reacts at once does so before it is known which answer is in the message
const KEPT = 1000; // messages, the latest
const FILE = new URL("sent.json", import.meta.url);

// OpenClaw registers a plugin more than once: the hooks of runs in one registration, those of messages in another.
const shared = (globalThis[Symbol.for("burnish.reactions")] ??= {
  runs: new Map(), // by session: what the model says in its latest run, to whom, and in which conversation
  sent: remembered(),
});

export default {
  id: "burnish",
  name: "burnish",
  description: "Reactions on messages rate the answers in them",

  register(api) {
    const { runs, sent } = shared;
    const notes = new Map(); // by id: until when they are looked at

    api.on("llm_input", (event, ctx) => {
      if (runs.get(ctx.sessionKey)?.id === event.runId) return; // it was asked before in this run
      const { channel, chatId: chat, senderId: owner } = ctx;
      runs.set(ctx.sessionKey, { id: event.runId, channel, chat, owner, answers: [], early: [] });
    });

    api.on("before_message_write", ({ message }, ctx) => {
      const run = runs.get(ctx.sessionKey);
      if (!run?.owner || message.role !== "assistant" || message.provider !== "burnish" || !message.responseId) return;
      run.answers.push({ text: textOf(message), response: message.responseId });
      for (const early of run.early.splice(0)) remember(ctx.sessionKey, run, early);
    });

    api.on("message_sent", (event, ctx) => {
      if (!event.success || !event.messageId) return;
      const { channelId: channel, conversationId, sessionKey } = ctx;
      const chat = conversationId?.replace(`${channel}:`, "");
      const message = { channel, id: event.messageId, text: event.content.trim() };
      for (const [session, run] of runs)
        if (run.channel === channel && run.chat === chat && (sessionKey ?? session) === session)
          remember(session, run, message);
    });

    function remember(session, run, message) {
      const exact = run.answers.filter((answer) => answer.text === message.text);
      const found = exact.length ? exact : run.answers.filter((answer) => answer.text.includes(message.text));
      if (!found.length) run.early.push(message); // it was sent while it was written
      if (found.length !== 1) return; // of two answers that read alike, nobody knows which is meant
      const { channel, id } = message;
      if (sent.some((each) => each.session === session && each.channel === channel && each.id === id)) return;
      sent.push({ session, channel, id, owner: run.owner, response: found[0].response });
      sent.splice(0, sent.length - KEPT);
      writeFileSync(FILE, JSON.stringify(sent));
    }

    async function look() {
      const open = new Set();
      for (const session of new Set(sent.map((message) => message.session)))
        for (const note of peekSystemEventEntries(session)) {
          open.add(note.id);
          if (!notes.has(note.id)) notes.set(note.id, Date.now() + PATIENCE_MS);
          const rated = Date.now() < notes.get(note.id) && meant(sent, session, note.contextKey ?? "");
          if (!rated) continue;
          notes.set(note.id, 0);
          if (!(await rate(note.id, rated))) notes.set(note.id, Infinity);
        }
      for (const id of notes.keys()) if (!open.has(id)) notes.delete(id);
    }

    async function rate(id, { response, rating }) {
      const { url, key } = api.pluginConfig;
      try {
        const answer = await fetch(`${url}/v1/feedback`, {
          method: "POST",
          headers: { "content-type": "application/json", ...(key ? { "x-burnish-key": key } : {}) },
          body: JSON.stringify({ response_id: response, rating, tags: ["reaction"], idempotency_key: id }),
          signal: AbortSignal.timeout(LIMIT_MS),
        });
        api.logger.info(`rated ${response} ${rating}: ${answer.status}`);
        return answer.status < 500;
      } catch (error) {
        api.logger.warn(`burnish does not answer: ${error}`);
        return false;
      }
    }

    if (api.registrationMode !== "full") return;
    api.on("message_received", look); // the next turn takes the notes away
    const timer = setInterval(look, LOOK_MS).unref();
    api.lifecycle?.onDispose?.(() => clearInterval(timer));
  },
};

// What a note rates, and how: the one message whose id, and whose owner's, it names. In all channels its key ends so:
// telegram:reaction:add:<chat>:<message>:<person>:<emoji>. (OpenClaw writes keys in lower case.)
function meant(sent, session, key) {
  const bare = key.replace(TONES, "");
  const here = sent.filter((each) => each.session === session && key.startsWith(`${each.channel}:reaction:add`));
  const found = here.flatMap((message) =>
    Object.entries(RATINGS)
      .filter(([emoji]) => bare.endsWith(`:${message.id}:${message.owner}:${emoji}`.toLowerCase()))
      .map(([, rating]) => ({ ...message, rating })),
  );
  return found.length === 1 ? found[0] : null;
}

function textOf(message) {
  const parts = Array.isArray(message.content) ? message.content : [{ type: "text", text: message.content }];
  return parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("").trim();
}

function remembered() {
  try {
    return JSON.parse(readFileSync(FILE, "utf8"));
  } catch {
    return []; // nothing was sent yet
  }
}
