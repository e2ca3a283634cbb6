// A window to say in words how an answer should have been.
import { html, useLayoutEffect, useRef, useState } from "../../lib.js";
import { Button } from "../../parts/button.js";
import { Dialog } from "../../parts/dialog.js";
import { comment } from "./said.js";

export function Comment({ turn, answer, onClose }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  const save = async () => {
    if (!text.trim() || busy) return;
    setBusy(true);
    if (await comment(turn, answer, text.trim())) onClose();
    else setBusy(false);
  };
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    save();
  };
  return html`<${Dialog} title="What should be different?" onClose=${onClose}>
    <label class="field">
      <span>In your words, such as “too long” or “use simple words”. Comments teach most.</span>
      <textarea ref=${field} class="input" value=${text} onInput=${({ target }) => setText(target.value)} onKeyDown=${onKeyDown} />
    </label>
    <div><${Button} tone="main" keys="Enter" busy=${busy} disabled=${!text.trim()} onClick=${save}>Save the comment<//></div>
  <//>`;
}
