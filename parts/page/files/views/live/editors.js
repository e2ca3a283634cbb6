// The bar under an answer: rate it, comment it, or write the reply that you wanted.

import { useKeys } from "../../keys.js";
import { html, useLayoutEffect, useRef, useState } from "../../lib.js";
import { Button } from "../../parts/button.js";
import { replyText } from "../../parts/text.js";
import { POINTS } from "./rating.js";

// `does`: {rate, open, undo}. `rated`: what the ratings come to, in words.
export function RatingBar({ rated, waits, does }) {
  const likert = /^([1-5]) of 5/.exec(rated ?? "")?.[1];
  return html`<div class="rating-bar" role="toolbar" aria-label="Rate this answer">
    ${waits && html`<p class="muted small">You can rate it when it is written.</p>`}
    <div class="line-up">
      <${Button} tone="good" icon="good" keys="g" pressed=${rated === "good"} disabled=${waits} onClick=${() => does.rate("good")}>Good<//>
      <${Button} tone="bad" icon="bad" keys="b" pressed=${rated === "bad"} disabled=${waits} onClick=${() => does.rate("bad")}>Bad<//>
      <${Button} keys="c" disabled=${waits} onClick=${() => does.open("comment")}>Comment<//>
      <${Button} keys="f" disabled=${waits} onClick=${() => does.open("fix")}>Fix<//>
      <${Button} tone="quiet" keys="u" onClick=${does.undo}>Undo<//>
    </div>
    <div class="line-up" role="group" aria-label="From 1, terrible, to 5, excellent">
      ${POINTS.map(
        (word, index) =>
          html`<${Button} key=${word} keys=${String(index + 1)} pressed=${likert === String(index + 1)} disabled=${waits} onClick=${() => does.rate(index + 1)}>${word}<//>`,
      )}
    </div>
  </div>`;
}

const RATES = [
  ["", "Only the comment"],
  ["bad", "Rate it bad, too"],
  ["good", "Rate it good, too"],
];

// Words about an answer. `onSave` gets the fields of a feedback request.
export function Comment({ draft, onSave, onClose }) {
  const [rating, setRating] = useState(draft.current.rating ?? "");
  const save = (comment) => onSave(rating ? { comment, rating } : { comment });
  const rate = (value) => {
    draft.current.rating = value;
    setRating(value);
  };
  return html`<${Editor} kind="comment" draft=${draft} label="What should be different?" placeholder="For example: too long, one sentence is enough" enterSaves onSave=${save} onClose=${onClose}>
    <div class="line-up" role="group" aria-label="With a rating">
      ${RATES.map(([value, label]) => html`<${Button} key=${value} pressed=${rating === value} onClick=${() => rate(value)}>${label}<//>`)}
    </div>
  <//>`;
}

// The reply, to be changed into what it should have been.
export function Fix({ draft, reply, onSave, onClose }) {
  draft.current.fix ??= replyText(reply);
  return html`<${Editor} kind="fix" draft=${draft} label="Change the reply into what you wanted" onSave=${(correction) => onSave({ correction })} onClose=${onClose} />`;
}

// `draft` keeps the words while somebody looks elsewhere.
function Editor({ kind, draft, label, placeholder, enterSaves = false, onSave, onClose, children }) {
  const field = useRef();
  const [empty, setEmpty] = useState(!draft.current[kind]?.trim());
  useLayoutEffect(() => {
    const { current } = field;
    current.value = draft.current[kind] ?? "";
    current.focus();
    current.setSelectionRange(0, 0);
  }, []);
  useKeys("The editor", [{ key: "Escape", does: "Close; what you wrote stays", run: onClose, inFields: true }]);
  const save = () => field.current.value.trim() && onSave(field.current.value.trim());
  const pressed = (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    if (event.ctrlKey || event.metaKey || (enterSaves && !event.shiftKey)) {
      event.preventDefault();
      save();
    }
  };
  const typed = ({ currentTarget: { value } }) => {
    draft.current[kind] = value;
    setEmpty(!value.trim());
  };
  return html`<form class="live-editor" onSubmit=${(event) => event.preventDefault()}>
    <label class="field"><span>${label}</span>
      <textarea ref=${field} class=${`input ${kind}`} rows=${kind === "fix" ? 10 : 3} maxlength="100000" placeholder=${placeholder} onInput=${typed} onKeyDown=${pressed} />
    </label>
    ${children}
    <div class="line-up">
      <${Button} tone="main" disabled=${empty} onClick=${save}>Save <kbd>${enterSaves ? "↵" : "Ctrl ↵"}</kbd><//>
      <${Button} tone="quiet" keys="Escape" onClick=${onClose}>Cancel<//>
      ${enterSaves && html`<span class="muted small">⇧ ↵ begins a new line</span>`}
    </div>
  </form>`;
}
