// Lines to paste elsewhere, with a button that copies them.
import { html, useState } from "../lib.js";
import { Button } from "./button.js";

const SAID_MS = 2_000;

export function Copyable({ text, label }) {
  const [said, say] = useState(null);
  const copy = async () => {
    say((await copied(text)) ? "Copied" : "Select the text and copy it");
    setTimeout(() => say(null), SAID_MS);
  };
  return html`<div class="code">
    <pre tabindex="0" aria-label=${label}>${text}</pre>
    <${Button} tone="quiet" icon=${said === "Copied" ? "check" : "copy"} onClick=${copy}><span aria-live="polite">${said ?? "Copy"}</span><//>
  </div>`;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text); // only exists on this machine or over https
    return true;
  } catch {
    return false;
  }
}
