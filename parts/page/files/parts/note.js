// A boxed remark: something to know, or something that went wrong.
import { html } from "../lib.js";
import { Icon } from "./icon.js";

const ICONS = { warn: "warn", bad: "warn", good: "check" };

export function Note({ tone = "", title, children }) {
  return html`<div class=${`note ${tone}`} role=${tone === "bad" ? "alert" : undefined}>
    ${ICONS[tone] && html`<${Icon} name=${ICONS[tone]} />`}
    <div>${title && html`<strong>${title}</strong>`}${children}</div>
  </div>`;
}
