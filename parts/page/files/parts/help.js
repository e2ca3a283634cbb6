// The sheet of all keys that work now.

import { bound } from "../keys.js";
import { html } from "../lib.js";
import { Kbd } from "./button.js";
import { Dialog } from "./dialog.js";

export function Help({ onClose }) {
  // Read before the dialog binds its own.
  const groups = bound().filter(({ name }) => name !== TITLE);
  return html`<${Dialog} title=${TITLE} onClose=${onClose} class="help" keys=${[{ key: "?", does: "Close", run: onClose, hidden: true }]}>
    <div class="columns">
      ${groups.reverse().map(
        ({ name, bindings }) => html`<section key=${name}>
          <h3>${name}</h3>
          <dl class="keys">
            ${bindings.map(
              ({ key, does }) => html`<div key=${does}>
                <dt>${[].concat(key).map((each) => html`<${Kbd} of=${each} />`)}</dt><dd>${does}</dd>
              </div>`,
            )}
          </dl>
        </section>`,
      )}
    </div>
    <p class="muted">Keys don't work while you type in a text field, except in Chat's while it is empty; Esc leaves it.</p>
  <//>`;
}

const TITLE = "Keys";
