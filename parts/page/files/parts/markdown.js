// Markdown of a model as nodes. They are built one by one from the tokens of a lexer: text is only ever a text node, no
// HTML of a model is one, and nothing is loaded. What isn't known or allowed is shown as it was written.
import { html } from "../lib.js";
import { lexer } from "../vendor/marked.js";
import { plain } from "./text.js";

const DEEPEST = 24; // tokens within tokens; what is deeper is shown as it was written
const LINKED = ["http:", "https:", "mailto:"];
const ENTITY = /&(amp|lt|gt|quot|apos|nbsp);/gi;
const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

const MARKS = /^[ \t]*(?:[-+*=_#`~>|]|\d+[.)]?)[-+*=_#`~>|: \t]*$/;

// `live`: the text is still being written. Throws RangeError if marks are nested more deeply than a stack can hold.
export const nodesOf = (text, live = false) => rendered(lexer(plain(live ? settled(text) : text)));

// The beginning of a text that is still being written, without what would jump when it goes on: a last line of marks may
// become anything with its next character, and two lines of a table are none yet.
export function settled(text) {
  const lines = text.split("\n");
  const end = lines.at(-1) ? lines.length : lines.length - 1;
  let rows = 0;
  while (lines[end - 1 - rows]?.startsWith("|")) rows += 1;
  if (rows === 1 || rows === 2) return lines.slice(0, end - rows).join("\n");
  return MARKS.test(lines.at(-1) ?? "") ? lines.slice(0, -1).join("\n") : text;
}

function rendered(tokens, depth = 0) {
  return tokens.map((token) => (depth > DEEPEST ? token.raw : (MAKE[token.type] ?? asWritten)(token, depth + 1)));
}

const inner = ({ tokens, text }, depth) => (tokens ? rendered(tokens, depth) : decoded(text));
const asWritten = ({ raw }) => raw;
const block = ({ raw }) => html`<p dir="auto">${raw.trimEnd()}</p>`;

const MAKE = {
  space: () => null,
  paragraph: (token, depth) => html`<p dir="auto">${inner(token, depth)}</p>`,
  // Not h1 to h6: the headings of the page are its own.
  heading: (token, depth) => html`<p class=${`prose-heading ${token.depth < 3 ? "high" : ""}`} dir="auto">${inner(token, depth)}</p>`,
  code: ({ text }) => html`<pre class="code-box" dir="ltr" tabindex="0"><code>${text}</code></pre>`,
  blockquote: (token, depth) => html`<blockquote>${inner(token, depth)}</blockquote>`,
  hr: () => html`<hr />`,
  list: ({ ordered, start, items }, depth) => {
    const rows = items.map((item, index) => html`<li key=${index} dir="auto">${inner(item, depth)}</li>`);
    return ordered ? html`<ol start=${start}>${rows}</ol>` : html`<ul>${rows}</ul>`;
  },
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  table,
  def: block,
  html: (token) => (token.block ? block(token) : /^<br ?\/?>$/i.test(token.raw) ? html`<br />` : token.raw),
  text: inner,
  escape: ({ text }) => text,
  strong: (token, depth) => html`<strong>${inner(token, depth)}</strong>`,
  em: (token, depth) => html`<em>${inner(token, depth)}</em>`,
  del: (token, depth) => html`<del>${inner(token, depth)}</del>`,
  codespan: ({ text }) => html`<code>${text}</code>`,
  br: () => html`<br />`,
  link: (token, depth) => anchor(token, inner(token, depth)),
  // An image would be loaded from elsewhere, and would tell that it was looked at.
  image: (token) => anchor(token, `[image: ${decoded(token.text) || "no text"}]`),
};

function table({ header, rows }, depth) {
  const cells = (row, tag) => row.map((cell, index) => html`<${tag} key=${index} class=${cell.align} dir="auto">${inner(cell, depth)}<//>`);
  return html`<div class="table-box" tabindex="0" role="group" aria-label="Table"><table>
    <thead><tr>${cells(header, "th")}</tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${index}>${cells(row, "td")}</tr>`)}</tbody>
  </table></div>`;
}

// The title names the target, whatever the text pretends.
function anchor(token, children) {
  const href = linked(token.href);
  if (!href) return token.raw;
  return html`<a href=${href} title=${href} target="_blank" rel="noopener noreferrer nofollow">${children}</a>`;
}

// Returns an address as a browser writes it, or null. One without a scheme would lead to burnish itself.
function linked(href) {
  const { protocol, href: address } = URL.canParse(href) ? new URL(href) : { protocol: "", href: "" };
  return LINKED.includes(protocol) ? address : null;
}

// The lexer decodes numbers, which may be of characters that hide.
const decoded = (text) => plain(text.replace(ENTITY, (_, name) => NAMED[name.toLowerCase()]));
