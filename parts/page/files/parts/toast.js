// Short messages at the edge of the page. Errors stay until they are closed, and offer to try again.
import { html } from "../lib.js";
import { update, useStore } from "../store.js";
import { Button } from "./button.js";

const STAYS_MS = 5_000;
let count = 0;

/**
 * Returns a function that takes the message away.
 * @param {string} text
 * @param {{tone?: string, action?: import("../types.d.ts").Action | null | false, stays?: boolean}} [options]
 */
export function toast(text, { tone = "", action, stays = tone === "bad" } = {}) {
  const id = ++count;
  const close = () => update(({ toasts }) => ({ toasts: toasts.filter((each) => each.id !== id) }));
  update(({ toasts }) => ({ toasts: [...toasts.slice(-3), { id, text, tone, action, close }] }));
  if (!stays) setTimeout(close, STAYS_MS);
  return close;
}

// Says that something failed, and offers to do it again.
export function failed(what, error, again) {
  toast(`${what}: ${error.message}`, { tone: "bad", action: again && { label: "Try again", run: again } });
}

export function Toasts() {
  const toasts = useStore((state) => state.toasts);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.map(({ id, text, tone, action, close }) => {
      const act = () => {
        close();
        if (action) action.run();
      };
      return html`<div key=${id} class=${`toast ${tone}`}>
        <p>${text}</p>
        ${action && html`<${Button} tone="quiet" keys=${action.keys} onClick=${act}>${action.label}<//>`}
        <${Button} tone="quiet icon-only" icon="cross" aria-label="Close" onClick=${close} />
      </div>`;
    })}
  </div>`;
}
