// Text of a model with its code boxes, lists and headings. Builds nodes of its own; the text itself is only ever a text node.
import { html, useMemo } from "../lib.js";
import { plain, Text } from "./text.js";

const LIMIT = 20_000; // characters; longer texts are shown as they are
const FENCE = /^\s{0,3}(```|~~~)/;
const ITEM = /^(\s*)([-*+•]|\d{1,4}[.)])\s+(.*)$/;
const HEADING = /^#{1,6}\s+(.*)$/;
const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*)/;

export function Prose({ children }) {
  const text = String(children ?? "");
  const blocks = useMemo(() => (text.length > LIMIT ? null : blocksOf(plain(text))), [text]);
  if (!blocks) return html`<${Text}>${text}<//>`;
  return html`<div class="text prose" dir="auto">${blocks.map((block, index) => html`<${Block} key=${index} block=${block} />`)}</div>`;
}

function Block({ block: { kind, text, items } }) {
  if (kind === "code") return html`<pre class="code-box" dir="ltr" tabindex="0"><code>${text}</code></pre>`;
  if (kind === "heading") return html`<p class="prose-heading" dir="auto">${inline(text)}</p>`;
  if (kind === "text") return html`<p dir="auto">${inline(text)}</p>`;
  const rows = items.map(
    ({ text: words, deep, value }, index) => html`<li key=${index} class=${deep ? "deep" : undefined} value=${value} dir="auto">${inline(words)}</li>`,
  );
  return kind === "ol" ? html`<ol>${rows}</ol>` : html`<ul>${rows}</ul>`;
}

function inline(text) {
  return text.split(INLINE).map((piece, index) => {
    if (index % 2 === 0) return piece;
    return piece.startsWith("`") ? html`<code key=${index}>${piece.slice(1, -1)}</code>` : html`<strong key=${index}>${piece.slice(2, -2)}</strong>`;
  });
}

// Returns a list of {kind: "text" | "heading" | "code", text} and {kind: "ul" | "ol", items: [{text, deep, value}]}.
export function blocksOf(text) {
  const blocks = [];
  /** @type {any} */
  let fence = null;
  /** @type {any} */
  let open = null; // the paragraph or list that the next line may belong to
  for (const line of text.split("\n")) {
    if (fence) {
      if (line.trim() === fence.mark) {
        fence = null;
        open = null;
      } else fence.block.text += (fence.block.text && "\n") + line;
      continue;
    }
    const mark = line.match(FENCE)?.[1];
    if (mark) {
      fence = { mark, block: { kind: "code", text: "" } };
      blocks.push(fence.block);
    } else if (!line.trim()) {
      if (open?.kind === "text") open = null; // items of a list may stand apart
    } else {
      open = taken(line, open, blocks);
    }
  }
  return blocks;
}

// Adds a line to the open block, or begins one. Returns the block that is open now.
function taken(line, open, blocks) {
  const begin = (block) => {
    blocks.push(block);
    return block;
  };
  const heading = line.match(HEADING);
  if (heading) {
    begin({ kind: "heading", text: heading[1] });
    return null;
  }
  const item = line.match(ITEM);
  if (item) {
    const [, indent, bullet, text] = item;
    const number = parseInt(bullet, 10);
    const deep = indent.length > 1;
    const kind = deep && open?.items ? open.kind : Number.isNaN(number) ? "ul" : "ol";
    const list = open?.kind === kind && open.items ? open : begin({ kind, items: [] });
    list.items.push({ text, deep, value: kind === "ol" && !Number.isNaN(number) ? number : undefined });
    return list;
  }
  if (open?.items && /^\s/.test(line)) {
    open.items.at(-1).text += `\n${line.trim()}`;
    return open;
  }
  if (open?.kind !== "text") return begin({ kind: "text", text: line });
  open.text += `\n${line}`;
  return open;
}
