// Runs burnish's plugin for OpenClaw with OpenClaw's own queue of notes. Each line of stdin is a note, or a restart of the
// plugin; "looked" says that the plugin has dealt with it.
import { createInterface } from "node:readline";
import { enqueueSystemEvent } from "openclaw/plugin-sdk/system-event-runtime";

const { channel, url, response, text } = JSON.parse(process.argv[2]);
const sessionKey = "agent:main:main";
let hooks = {};

async function start() {
  hooks = {};
  delete globalThis[Symbol.for("burnish.reactions")];
  const { default: plugin } = await import(`./index.js?${Date.now()}`);
  plugin.register({
    registrationMode: "full",
    pluginConfig: { url },
    logger: { info: console.error, warn: console.error },
    on: (name, handler) => (hooks[name] = handler),
  });
}

await start();
const run = { sessionKey, channel, chatId: "c1", senderId: "ann" };
hooks.llm_input({ runId: "r1" }, run);
const message = { role: "assistant", provider: "burnish", responseId: response, content: text };
hooks.before_message_write({ message }, run);
hooks.message_sent({ success: true, messageId: "m1", content: text }, { channelId: channel, conversationId: "c1", sessionKey });

for await (const line of createInterface(process.stdin)) {
  const { key, restart } = JSON.parse(line);
  if (restart) await start();
  else enqueueSystemEvent("a reaction", { sessionKey, contextKey: key });
  await hooks.message_received();
  console.log("looked");
}
process.exit();
