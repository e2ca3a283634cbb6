// Text of models, users and tools. It is hostile until shown: only ever a text node, with nothing invisible in it.
import { html, useMemo, useState } from "../lib.js";
import { Button } from "./button.js";

const LINE_LIMIT = 10_000; // characters; laying out longer lines freezes browsers
const FOLDED = 4_000; // characters that are shown of a long text at first
const SHOWN = 400_000; // characters that are shown at most

// Characters that steer terminals, hide, or turn the order of the others round.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
const number = new Intl.NumberFormat("en");

function visible(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code); // ESC → ␛
  return code === 0x7f ? "␡" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

// Returns a text in which nothing is invisible and no line is endless.
export function plain(text) {
  const lines = String(text ?? "")
    .replace(/\r\n/g, "\n")
    .replace(CONTROLS, visible)
    .split("\n");
  return lines
    .map((line) => {
      const rest = line.length - LINE_LIMIT;
      return rest > 0 ? `${line.slice(0, LINE_LIMIT)} … (${number.format(rest)} more characters in this line)` : line;
    })
    .join("\n");
}

// The beginning of a text in one line, for lists.
export function line(text, limit = 300) {
  return plain(
    String(text ?? "")
      .slice(0, limit)
      .replace(/\s+/g, " ")
      .trim(),
  );
}

// What burnish says of something, as a sentence of its own.
export function sentence(text) {
  const begun = /^[a-z]+[ ,:]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return /[.!?:…]$/.test(begun) ? begun : `${begun}.`;
}

// `fold`: characters shown at first; 0 shows all.
export function Text({ children, fold = FOLDED, class: extra = "" }) {
  const text = String(children ?? "");
  const [open, setOpen] = useState(false);
  const folded = fold > 0 && !open && text.length > fold * 1.2;
  const shown = useMemo(() => plain(text.slice(0, folded ? fold : SHOWN)), [text, folded, fold]);
  const left = text.length - (folded ? fold : SHOWN);
  return html`<div class=${`text ${extra}`} dir="auto">
    ${shown}${folded && "…"}
    ${folded && html`<div class="unfold"><${Button} tone="quiet" onClick=${() => setOpen(true)}>Show all: ${number.format(left)} more characters<//></div>`}
    ${!folded && left > 0 && html`<p class="muted">${number.format(left)} more characters are not shown here.</p>`}
  </div>`;
}

// The text of an assistant message, whose content is a string or a list of parts.
export function replyText(reply) {
  const content = reply?.content;
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((part) => part.text ?? "").join("") : "";
}
