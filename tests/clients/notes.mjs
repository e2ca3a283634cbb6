// Runs burnish's plugin for OpenClaw with OpenClaw's own queue of notes. Each line of stdin is a note, a button, a turn that
// takes the notes away, or a restart of the plugin; "looked" says that the plugin has dealt with it, and a button's line
// also says what its person sees.
import { createInterface } from "node:readline";
import { enqueueSystemEvent, resetSystemEventsForTest } from "openclaw/plugin-sdk/system-event-runtime";

const { channel, url, response, text } = JSON.parse(process.argv[2]);
const sessionKey = "agent:main:main";
let hooks = {};
let press;

async function start() {
  hooks = {};
  delete globalThis[Symbol.for("burnish.reactions")];
  const { default: plugin } = await import(`./index.js?${Date.now()}`);
  plugin.register({
    registrationMode: "full",
    pluginConfig: { url, buttons: true },
    registerInteractiveHandler: (each) => each.channel === channel && (press = each.handler),
    logger: { info: console.error, warn: console.error },
    on: (name, handler) => (hooks[name] = handler),
  });
}

// What OpenClaw gives a handler in Telegram.
function pressed(payload, seen) {
  return {
    channel,
    senderId: "ann",
    callbackId: `press-${++presses}`,
    callback: { messageId: "m1", chatId: "c1", payload },
    respond: {
      editButtons: async ({ buttons: [row] }) => seen.push(row.map(({ text }) => text).join(" ")),
      reply: async ({ text }) => seen.push(text),
    },
  };
}

let presses = 0;
await start();
const run = { sessionKey, channel, chatId: "c1", senderId: "ann" };
hooks.llm_input({ runId: "r1" }, run);
const message = { role: "assistant", provider: "burnish", responseId: response, content: text };
hooks.before_message_write({ message }, run);
hooks.message_sent({ success: true, messageId: "m1", content: text }, { channelId: channel, conversationId: "c1", sessionKey });

for await (const line of createInterface(process.stdin)) {
  const { key, restart, turn, buttons = [] } = JSON.parse(line);
  const seen = [];
  if (restart) await start();
  if (turn) resetSystemEventsForTest();
  if (key) enqueueSystemEvent("a reaction", { sessionKey, contextKey: key });
  await Promise.all(buttons.map((payload) => press(pressed(payload, seen))));
  await hooks.message_received();
  console.log(["looked", ...seen].join(" | "));
}
process.exit();
