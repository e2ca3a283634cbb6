// Buttons show the key that does the same.

import { keyName } from "../keys.js";
import { html } from "../lib.js";
import { Icon } from "./icon.js";

export function Kbd({ of: key }) {
  return html`<kbd>${keyName(key)}</kbd>`;
}

// `tone`: "", "main" (one a view), "quiet", "good", "bad". `busy`: it was pressed, and burnish hasn't answered yet.
export function Button({ children, tone = "", keys, icon, busy = false, pressed, disabled, class: extra = "", ...more }) {
  return html`<button
    type="button"
    class=${`button ${tone} ${extra}`}
    aria-pressed=${pressed === undefined ? undefined : String(pressed)}
    aria-busy=${busy ? "true" : undefined}
    aria-keyshortcuts=${keys}
    disabled=${disabled || busy}
    ...${more}
  >
    ${icon && html`<${Icon} name=${icon} />`}${children != null && html`<span>${children}</span>`}${keys && html`<${Kbd} of=${keys} />`}
  </button>`;
}
