// Reactions and buttons become ratings: 👍 or 👎 on a message in a channel rates the answer in it, and only from the
// person whom it answers. Taking a reaction back, or pressing a button again, takes the rating back.
//
// OpenClaw has no event for a reaction. It notes it for the agent's next turn, with the ids of message and person; these
// notes are read here, and left where they are. Which answer is in a message is remembered when it is sent, and so are
// the ratings that it got.
import { readFileSync, writeFileSync } from "node:fs";
import { peekSystemEventEntries } from "openclaw/plugin-sdk/system-event-runtime";

const RATINGS = { "👍": "good", "+1": "good", thumbsup: "good", "👎": "bad", "-1": "bad", thumbsdown: "bad" };
const BUTTONS = { good: "👍", bad: "👎" };
const CHANNELS = ["telegram", "discord", "slack"]; // those whose buttons a plugin can answer
const OWN_WORDS = /^burnish: /;
const TONES = /[\u{1f3fb}-\u{1f3ff}\ufe0f]|::skin-tone-\d/gu;
const LOOK_MS = 1000;
const LIMIT_MS = 10_000; // of one request to burnish
const PATIENCE_MS = 30_000; // who reacts at once does so before it is known which answer is in the message
const PRESS_MS = 10_000; // likewise for a button
const STRANGER = "burnish: only the person whom this message answers can rate it";
const HANDLED = { handled: true };
const SEEN = 0; // a note that needs no other look
const GONE = 404; // there is nothing left to take back
const REACTION = /^(\w+):reaction:(?:[^:]+:)?(add|remove)(?:e?d)?:(.*)$/;
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
    const { url, key, buttons } = api.pluginConfig;

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
      sent.push({ session, channel, id, chat: run.chat, owner: run.owner, response: found[0].response, given: [], todo: [] });
      sent.splice(0, sent.length - KEPT);
      save();
    }

    function save() {
      try {
        writeFileSync(FILE, JSON.stringify(sent));
      } catch (error) {
        api.logger.warn(`which answers are in which messages is forgotten at the next start: ${error}`);
      }
    }

    if (buttons)
      api.on("reply_payload_sending", ({ payload, kind, sessionKey }, ctx) => {
        const run = runs.get(sessionKey ?? ctx.sessionKey);
        if (kind !== "final" || !run?.owner || !CHANNELS.includes(run.channel)) return;
        if (!payload.text || payload.isError || OWN_WORDS.test(payload.text)) return;
        const choice = Object.entries(BUTTONS).map(([rating, label]) => ({
          label,
          action: { type: "callback", value: `burnish:${rating}` },
          reusable: true,
        }));
        const blocks = [...(payload.presentation?.blocks ?? []), { type: "buttons", buttons: choice }];
        return { payload: { ...payload, presentation: { ...payload.presentation, blocks } } };
      });

    // One thing at a time: what a tap or a note does depends on what the one before it did.
    let turn = Promise.resolve();
    function inTurn(work) {
      turn = turn.then(work).catch((error) => api.logger.warn(`burnish: ${error}`));
      return turn;
    }

    // A button is pressed: it rates, changes the rating, or takes it back.
    async function pressed(ctx) {
      const message = await meantBy(ctx);
      if (!message) return told(ctx, "burnish doesn't know which answer is in this message; /rl rates the latest");
      if (message.owner !== ctx.senderId) return told(ctx, STRANGER);
      await inTurn(() => pressedOn(message, ctx));
      return HANDLED;
    }

    async function pressedOn(message, ctx) {
      const { payload } = ctx.callback ?? ctx.interaction;
      const before = message.given.filter((each) => each.by === "button");
      const again = before.at(-1)?.rating === payload;
      // The new rating comes first: if burnish refuses it, the one before still counts.
      const { problem } = again ? {} : await rated(message, payload, "button", ctx.callbackId ?? ctx.interactionId);
      const kept = problem ?? (await takenBack(message, before)).problem;
      const now = message.given.findLast((each) => each.by === "button")?.rating;
      if (kept) await told(ctx, `burnish: ${problem ? "not rated" : "the rating before wasn't taken back"}: ${kept}`);
      else if (ctx.channel !== "telegram") await told(ctx, `burnish: ${now ? `rated ${now}` : "the rating is taken back"}`);
      if (ctx.channel === "telegram" && now !== before.at(-1)?.rating)
        await ctx.respond.editButtons({ buttons: [row(now)] }); // a tick says it
    }

    // People may press before it is known which answer is in the message.
    async function meantBy(ctx) {
      const { messageId, messageTs, chatId = ctx.conversationId } = ctx.callback ?? ctx.interaction;
      const id = String(messageId ?? messageTs);
      for (const end = Date.now() + PRESS_MS; ; await new Promise((resolve) => setTimeout(resolve, 100))) {
        const found = sent.find((each) => each.channel === ctx.channel && each.id === id && chatId.endsWith(each.chat));
        if (found || Date.now() > end) return found;
      }
    }

    async function told(ctx, text) {
      await ctx.respond.reply({ text, ephemeral: true }); // Telegram shows it to the whole chat
      return HANDLED;
    }

    let working; // if burnish answers late, one look's work is enough to wait for it
    function look() {
      const open = new Set();
      for (const session of new Set(sent.map((message) => message.session)))
        for (const note of peekSystemEventEntries(session)) {
          open.add(note.id);
          if (notes.get(note.id) !== SEEN) take(session, note);
        }
      for (const id of notes.keys()) if (!open.has(id)) notes.delete(id);
      working ??= inTurn(work).finally(() => (working = undefined));
      return working;
    }

    // Keep what a note asks for, because the next turn takes the note away.
    function take(session, { id, contextKey }) {
      const key = contextKey ?? "";
      const found = meant(sent, session, key);
      if (!notes.has(id)) {
        notes.set(id, Date.now() + PATIENCE_MS);
        if (!found && REACTION.test(key))
          api.logger.info(`reaction: ${key} rates nothing yet: no 👍 or 👎 of the person whom a known message answers`);
      }
      if (found && !found.message.todo.some((each) => each.id === id)) {
        found.message.todo.push({ rating: found.rating, added: found.added, id });
        save();
      }
      if (found || Date.now() >= notes.get(id)) notes.set(id, SEEN);
    }

    // Do what is left to do, in the order in which it was asked for. If burnish doesn't answer, all of it waits.
    async function work() {
      let message;
      while ((message = sent.find((each) => each.todo.length))) {
        const { rating, added, id } = message.todo[0];
        const own = message.given.filter((each) => each.by === "reaction" && each.rating === rating);
        const { later } = added ? await rated(message, rating, "reaction", id) : await takenBack(message, own);
        if (later) return;
        message.todo.shift();
        save();
      }
    }

    async function rated(message, rating, by, id) {
      const { response } = message;
      const body = { response_id: response, rating, tags: [by], idempotency_key: id };
      const answer = await asked("POST", "/v1/feedback", body, `${by}: ${response} rated ${rating}`);
      const feedback = answer.said?.id;
      if (feedback && !message.given.some((each) => each.id === feedback)) message.given.push({ by, rating, id: feedback });
      save();
      return answer;
    }

    // Take ratings of a message back: exactly these, and nobody else's.
    async function takenBack(message, ratings) {
      for (const each of ratings) {
        const what = `${each.by}: ${message.response} no longer rated ${each.rating}`;
        const answer = await asked("DELETE", `/v1/feedback/${each.id}`, undefined, what);
        if (answer.problem && answer.status !== GONE) return answer;
        message.given = message.given.filter((one) => one !== each);
        save();
      }
      return {};
    }

    // Ask burnish. "problem" says why nothing was done, "later" that another try may help.
    let silent = false; // its silence is said once
    async function asked(method, path, body, what) {
      try {
        const answer = await fetch(`${url}${path}`, {
          method,
          headers: { "content-type": "application/json", ...(key ? { "x-burnish-key": key } : {}) },
          body: body && JSON.stringify(body),
          signal: AbortSignal.timeout(LIMIT_MS),
        });
        const said = await answer.json().catch(() => ({}));
        const { ok, status } = answer;
        if (!ok && status >= 500) throw new Error(said.error?.message ?? `status ${status}`);
        silent = false;
        const problem = ok ? undefined : `burnish refuses: ${said.error?.message ?? `status ${status}`}`;
        if (ok) api.logger.info(what);
        else api.logger.warn(`not done: ${what}: ${problem}`);
        return { status, problem, said: ok ? said : undefined };
      } catch (error) {
        if (!silent) api.logger.warn(`not done yet: ${what}: burnish does not answer: ${error}`);
        silent = true;
        return { problem: "burnish does not answer", later: true };
      }
    }

    if (api.registrationMode !== "full") return;
    if (buttons)
      for (const channel of CHANNELS) api.registerInteractiveHandler({ channel, namespace: "burnish", handler: pressed });
    api.on("message_received", look); // the next turn takes the notes away
    const timer = setInterval(look, LOOK_MS).unref();
    api.lifecycle?.onDispose?.(() => clearInterval(timer));
  },
};

// What a note rates, and how: the one message whose id, and whose owner's, it names. In lower case, as OpenClaw writes it:
// telegram:reaction:add:<chat>:<message>:<person>:<emoji>, discord:reaction:removed:<message>:<person>:<emoji>,
// slack:reaction:<team>:added:<chat>:<message>:<person>:<emoji>:<event>.
function meant(sent, session, key) {
  const [, channel, verb, rest] = REACTION.exec(key.replace(TONES, "")) ?? [];
  const found = sent
    .filter((each) => each.session === session && each.channel === channel)
    .flatMap((message) =>
      Object.entries(RATINGS)
        .filter(([emoji]) => `:${rest}:`.includes(`:${message.id}:${message.owner}:${emoji}:`.toLowerCase()))
        .map(([, rating]) => ({ message, rating, added: verb === "add" })),
    );
  return found.length === 1 ? found[0] : null;
}

function row(now) {
  return Object.entries(BUTTONS).map(([rating, label]) => ({
    text: rating === now ? `${label} ✓` : label,
    callback_data: `burnish:${rating}`,
  }));
}

function textOf(message) {
  const parts = Array.isArray(message.content) ? message.content : [{ type: "text", text: message.content }];
  return parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("").trim();
}

function remembered() {
  try {
    return JSON.parse(readFileSync(FILE, "utf8")).map((each) => ({ given: [], todo: [], chat: "", ...each })); // of an older plugin
  } catch {
    return []; // nothing was sent yet
  }
}
