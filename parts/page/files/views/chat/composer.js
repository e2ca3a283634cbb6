// The field for the next message, and who answers it.
import { html } from "../../lib.js";
import { Button } from "../../parts/button.js";
import { state, useStore } from "../../store.js";
import { besides, LENGTHS, longest, MOST } from "./models.js";
import { change, say, stop } from "./talk.js";

const COUNTS = ["One answer", "Two answers", "Three answers", "Four answers"].slice(0, MOST);

const KEYS_RATE = "Keys such as g and b rate the answer; other text is a message. i or a click begins one with any letter.";

// `writing`: an answer is under way. `field`: a ref that gets the text field. `rates`: keys work in it while it is empty.
export function Composer({ chat, choices, live, writing, field, rates, onBegin }) {
  const submit = () => {
    const text = state.chat.draft.trim(); // what was typed since the last frame, too
    if (text && !writing) say(text);
  };
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  };
  const onSubmit = (event) => {
    event.preventDefault();
    submit();
  };
  return html`<form class="composer" onSubmit=${onSubmit}>
    <textarea
      ref=${field}
      class="input"
      rows="2"
      aria-label="Message"
      placeholder=${rates ? KEYS_RATE : "Write a message: i begins, Enter sends, Shift+Enter adds a line."}
      onPointerDown=${onBegin}
      value=${chat.draft}
      onInput=${(event) => change({ draft: event.target.value })}
      onKeyDown=${onKeyDown}
    />
    <${Settings} chat=${chat} choices=${choices} live=${live} />
    ${writing ? html`<${Button} keys="Escape" onClick=${stop}>Stop<//>` : html`<${Button} tone="main" keys="Enter" disabled=${!chat.draft.trim()} onClick=${submit}>Send<//>`}
  </form>`;
}

function Settings({ chat: { model, count, length }, choices, live }) {
  const others = besides(choices, model, live);
  const most = useStore(({ status }) => longest({ length, model }, status));
  const lengths = LENGTHS.includes(most) ? LENGTHS : [most, ...LENGTHS];
  return html`<div class="line-up">
    <select class="input" aria-label="Who answers" value=${model} onChange=${({ target }) => change({ model: target.value, count: count.startsWith("beside:") ? "1" : count })}>
      ${choices.map(({ id, name }) => html`<option key=${id} value=${id} selected=${id === model}>${name}</option>`)}
    </select>
    <select class="input" aria-label="How many answers" value=${count} onChange=${({ target }) => change({ count: target.value })}>
      ${COUNTS.map((name, index) => html`<option key=${name} value=${String(index + 1)} selected=${count === String(index + 1)}>${name}</option>`)}
      ${
        others.length > 0 &&
        html`<optgroup label="Two answers, one from">
        ${others.map(({ id, name }) => html`<option key=${id} value=${`beside:${id}`} selected=${count === `beside:${id}`}>Beside it: ${name}</option>`)}
      </optgroup>`
      }
    </select>
    <select class="input" aria-label="Longest answer" value=${String(most)} onChange=${({ target }) => change({ length: Number(target.value) })}>
      ${lengths.map((each) => html`<option key=${each} value=${String(each)} selected=${each === most}>${each ? `Up to ${each} tokens` : "Any length"}</option>`)}
    </select>
  </div>`;
}
