// A conversation as the model saw it: what people said, what it answered, and folded away what tools did.
import { html, useMemo, useState } from "../lib.js";
import { Button } from "./button.js";
import { Prose } from "./prose.js";
import { line, replyText, Text } from "./text.js";

const SHOWN = 12; // latest blocks that are shown at first; an agent's history may have thousands
const MORE = 50; // blocks or calls that one press adds

const WHO = { user: "Asked", assistant: "Answered", system: "System prompt", developer: "System prompt" };
const number = new Intl.NumberFormat("en");

// `messages` in chat's format. `reply`, if given, is the answer that it ends with.
export function Conversation({ messages, reply }) {
  const blocks = useMemo(() => blocksOf(reply ? [...messages, reply] : messages), [messages, reply]);
  const [shown, setShown] = useState(SHOWN);
  const hidden = Math.max(0, blocks.length - shown);
  return html`<div class="conversation">
    ${
      hidden > 0 &&
      html`<p class="earlier"><${Button} tone="quiet" onClick=${() => setShown(shown + MORE)}>Show ${Math.min(hidden, MORE)} of ${number.format(hidden)} earlier messages<//></p>`
    }
    ${blocks.slice(hidden).map((block, index) => html`<${Block} key=${hidden + index} block=${block} />`)}
  </div>`;
}

function Block({ block }) {
  if (block.calls) return html`<${Calls} calls=${block.calls} />`;
  const { role } = block.message;
  if (role === "system" || role === "developer") {
    return html`<${Fold} label=${WHO[role]} hint=${line(wordsOf(block.message), 120)}>${() => html`<${Said} message=${block.message} />`}<//>`;
  }
  return html`<article class=${`said ${role}`}>
    <h2>${WHO[role] ?? role}</h2>
    <${Said} message=${block.message} />
  </article>`;
}

// One message: its thoughts folded, its words, and a remark for anything that isn't text.
export function Said({ message, live = false }) {
  const parts = partsOf(message);
  const thought = thoughtOf(message);
  const Words = message.role === "assistant" ? Prose : Text;
  return html`${thought && html`<${Fold} label="Thought" hint=${line(thought, 120)}>${() => html`<${Text}>${thought}<//>`}<//>`}
    ${parts.map((part, index) => (part.text === undefined ? html`<p key=${index} class="muted">[${part.kind}]</p>` : html`<${Words} key=${index} live=${live}>${part.text}<//>`))}
    ${!parts.length && !thought && !message.tool_calls?.length && html`<p class="muted">(no text)</p>`}`;
}

// Its content is made only when it is opened.
export function Fold({ label, hint, children }) {
  const [open, setOpen] = useState(false);
  return html`<details class="fold" onToggle=${(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
    <summary><b>${label}</b> ${!open && hint && html`<span class="hint" dir="auto">${hint}</span>`}</summary>
    ${open && html`<div class="fold-inner">${children()}</div>`}
  </details>`;
}

function Calls({ calls }) {
  const names = [...new Set(calls.map(({ name }) => name))];
  const label = calls.length === 1 ? "1 tool call" : `${number.format(calls.length)} tool calls`;
  return html`<${Fold} label=${label} hint=${line(names.slice(0, 8).join(", "), 120)}>${() => html`<${EachCall} calls=${calls} />`}<//>`;
}

function EachCall({ calls }) {
  const [shown, setShown] = useState(MORE);
  const left = calls.length - shown;
  return html`${calls.slice(0, shown).map(
    ({ name, given, result }, index) => html`<${Fold} key=${index} label=${line(name, 80) || "Result"} hint=${line(given, 160)}>
        ${() => html`${given && html`<p class="label">Given</p><${Text} class="mono">${indented(given)}<//>`}
          <p class="label">Result</p>
          ${result === undefined ? html`<p class="muted">Not in this conversation yet.</p>` : html`<${Text} class="mono">${result}<//>`}`}
      <//>`,
  )}
    ${left > 0 && html`<${Button} tone="quiet" onClick=${() => setShown(shown + MORE)}>Show ${Math.min(left, MORE)} of ${number.format(left)} more calls<//>`}`;
}

// Returns a list of {message}, and {calls: [{name, given, result}]} for calls that follow each other.
function blocksOf(messages) {
  const blocks = [];
  const byId = new Map();
  const calls = () => {
    if (!blocks.at(-1)?.calls) blocks.push({ calls: [] });
    return blocks.at(-1).calls;
  };
  for (const message of messages) {
    if (message.role === "tool" || message.role === "function") {
      const call = byId.get(message.tool_call_id);
      if (call) call.result = wordsOf(message);
      else calls().push({ name: message.name ?? "", given: "", result: wordsOf(message) });
      continue;
    }
    const called = message.tool_calls ?? [];
    if (!called.length || partsOf(message).length || thoughtOf(message)) blocks.push({ message });
    for (const each of called) {
      const { name = each.type ?? "tool", arguments: given = "" } = each.function ?? each.custom ?? {};
      const call = { name: String(name), given: typeof given === "string" ? given : JSON.stringify(given) };
      if (each.id) byId.set(each.id, call);
      calls().push(call);
    }
  }
  return blocks;
}

// Returns [{text} or {kind}].
function partsOf({ content, refusal }) {
  const parts = Array.isArray(content) ? content : content ? [{ type: "text", text: content }] : [];
  const found = parts
    .filter((part) => !["thinking", "reasoning", "redacted_thinking"].includes(part?.type))
    .map((part) =>
      typeof part === "string" ? { text: part } : typeof part?.text === "string" ? { text: part.text } : { kind: line(part?.type ?? "something else", 40) },
    );
  return refusal ? [...found, { text: String(refusal) }] : found;
}

function thoughtOf({ content, reasoning_content: reasoning, reasoning: other }) {
  const parts = Array.isArray(content) ? content : [];
  const thought = parts.map((part) => part?.thinking ?? (part?.type === "reasoning" ? part.text : "") ?? "").join("");
  return [reasoning, other, thought].find((each) => typeof each === "string" && each) ?? "";
}

const wordsOf = (message) => replyText(message);

function indented(given) {
  try {
    return JSON.stringify(JSON.parse(given), null, 2);
  } catch {
    return given; // cut off, or not JSON
  }
}
