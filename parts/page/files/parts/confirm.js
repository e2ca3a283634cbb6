// Asks before something changes, and says what will change. The main button has the focus, so Enter does it.
import { html, useState } from "../lib.js";
import { Button } from "./button.js";
import { Dialog } from "./dialog.js";
import { Note } from "./note.js";

// `act` returns a promise; the dialog closes when it is kept, and shows the error if it is broken.
// `waits`: what is going on meanwhile.
export function Confirm({ title, does, tone = "main", act, waits, onClose, children }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const run = async () => {
    setBusy(true);
    try {
      await act();
      onClose();
    } catch (fault) {
      setError(fault);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <div class="stack">${children}</div>
    ${error && html`<${Note} tone="bad" title="That didn't work."><p>${error.message}</p><//>`}
    <p class="muted" role="status">${busy && waits}</p>
    <div class="line-up"><${Button} tone=${tone} busy=${busy} onClick=${run} autofocus>${error ? "Try again" : does}<//><${Button} onClick=${onClose}>Cancel<//></div>
  <//>`;
}
