// Markdown of a model becomes nodes that can do nothing but show it.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./browser.mjs";

const { nodesOf, settled } = await import("../../../parts/page/files/parts/markdown.js");

const ATTRIBUTES = ["class", "start", "href", "title", "target", "rel", "dir", "tabindex", "role", "aria-label"];
const SHOWN = ["class", "start", "href", "rel"];

// The nodes as text. Text is in braces, so no tag in it can be taken for a node.
function markup(node) {
  if (node == null || node === false) return "";
  if (Array.isArray(node)) return node.map(markup).join("");
  if (typeof node !== "object") return `{${node}}`;
  const { children, ...properties } = node.props;
  for (const name of Object.keys(properties)) assert.ok(ATTRIBUTES.includes(name), name);
  const attributes = SHOWN.filter((name) => properties[name] && properties[name] !== "code-box").map((name) => ` ${name}=${properties[name]}`);
  return `<${[node.type, ...attributes].join("")}>${markup(children)}</${node.type}>`;
}

const shown = (text) => markup(nodesOf(text)).replaceAll("}{", "");

test("paragraphs, emphasis and code", () => {
  assert.equal(shown("A **b** _c_ `<d>` ~~e~~"), "<p>{A }<strong>{b}</strong>{ }<em>{c}</em>{ }<code>{<d>}</code>{ }<del>{e}</del></p>");
  assert.equal(shown("one\ntwo\\\nthree"), "<p>{one\ntwo}<br></br>{three}</p>");
  assert.equal(shown("# T\n\n---"), "<p class=prose-heading high>{T}</p><hr></hr>");
});

test("lists keep their nesting, their numbers and their boxes", () => {
  assert.equal(shown("3. a\n   - b\n     - c\n4. d"), "<ol start=3><li>{a}<ul><li>{b}<ul><li>{c}</li></ul></li></ul></li><li>{d}</li></ol>");
  assert.equal(shown("- [x] a\n- [ ] b"), "<ul><li>{☑ a}</li><li>{☐ b}</li></ul>");
  assert.equal(shown("> a\n> > b"), "<blockquote><p>{a}</p><blockquote><p>{b}</p></blockquote></blockquote>");
});

test("a table has a head, rows and sides", () => {
  const table = shown("| a | b |\n|---|--:|\n| 1<br>2 | `x` |\n| only |");
  assert.ok(table.includes("<tr><th>{a}</th><th class=right>{b}</th></tr>"), table);
  assert.ok(table.includes("<tr><td>{1}<br></br>{2}</td><td class=right><code>{x}</code></td></tr>"), table);
  assert.ok(table.includes("<tr><td>{only}</td>"), table);
});

test("code is not read, whether its fence is closed or not", () => {
  const code = "<pre><code>{if (a < b) *c*}</code></pre>";
  assert.equal(shown("```js\nif (a < b) *c*\n```"), code);
  assert.equal(shown("```js\nif (a < b) *c*"), code);
  assert.equal(shown("~~~\n```\nif (a < b) *c*\n~~~"), "<pre><code>{```\nif (a < b) *c*}</code></pre>");
});

test("no HTML of a model is a node", () => {
  const hostile = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror=hit()>",
    "a <b onclick=hit()>b</b>",
    "<svg><animate onbegin=hit()>",
    "<iframe srcdoc='<script>hit()</script>'></iframe>",
    "<!-- c --><style>* b</style>",
    "<br onclick=hit()>",
    "| <img src=x onerror=hit()> |\n|---|\n| <script>hit()</script> |",
    "- <div>\n  <script>hit()</script>",
    "**<script>**",
    "&lt;script&gt;hit()&lt;/script&gt;",
    "[x]: http://a.b '<script>'",
  ];
  for (const text of hostile) {
    const outside = shown(text).replaceAll(/\{[^}]*\}/g, "");
    assert.doesNotMatch(outside, /script|img|svg|iframe|style|animate|<b>|div>\{|onclick/, text);
  }
  assert.equal(shown("<script>hit()</script>"), "<p>{<script>hit()</script>}</p>");
});

test("only web and mail addresses are links, and no image is loaded", () => {
  const rel = "rel=noopener noreferrer nofollow";
  assert.equal(shown("[a](https://b.c/d)"), `<p><a href=https://b.c/d ${rel}>{a}</a></p>`);
  assert.equal(shown("a@b.cd"), `<p><a href=mailto:a@b.cd ${rel}>{a@b.cd}</a></p>`);
  assert.equal(shown("![cat](https://b.c/cat.png)"), `<p><a href=https://b.c/cat.png ${rel}>{[image: cat]}</a></p>`);
  const others = [
    "javascript:hit()",
    "JaVa&#115;cript:hit()",
    "data:text/html,hit",
    "/burnish/reset",
    "//b.c",
    "file:///etc/passwd",
    "vbscript:hit",
    "#/health",
  ];
  for (const address of others) {
    for (const mark of ["", "!"]) assert.equal(shown(`${mark}[a](${address})`), `<p>{${mark}[a](${address})}</p>`);
  }
  assert.equal(shown("[a][b]\n\n[b]: javascript:hit()"), "<p>{[a][b]}</p><p>{[b]: javascript:hit()}</p>");
});

test("no character that hides comes out of an entity", () => {
  assert.equal(shown("a &amp;&lt;&#x41;&#66; &unknown; &#x202e;b&#0;"), "<p>{a &<AB &unknown; ⟨U+202E⟩b�}</p>");
  for (const text of ["[&#x202e;a](https://b.c/&#x202e;)", "**&#8238;a**", "| &#x202e; |\n|--|\n", "# &#x202e;", "![&#x202e;](https://b.c)"]) {
    assert.doesNotMatch(shown(text), /\u202e/, text);
  }
  assert.ok(shown("`&#x202e;`").includes("<code>{&#x202e;}"));
});

test("what is nested too deeply is shown as it was written", () => {
  const text = shown(`${"> ".repeat(200)}deep`);
  assert.ok(text.includes("> > deep}"), text);
  assert.ok(text.split("<blockquote>").length < 30);
});

test("no word is lost", () => {
  const text = "One [two](/three) <four> [five]: http://six\n\n[seven]: http://eight\n\n![nine](ten) <!-- eleven -->\n\n| twelve |\n|--|\n| thirteen |";
  for (const word of text.match(/\w{3,}/g)) assert.ok(shown(text).includes(word), word);
});

test("a text that is being written holds back what would jump", () => {
  for (const [text, kept] of [
    ["Items:\n-", "Items:"],
    ["Items:\n- ", "Items:"],
    ["Items:\n- a", "Items:\n- a"],
    ["Text\n===", "Text"],
    ["Text\n1.", "Text"],
    ["Text\n12", "Text"],
    ["Text\n12 a", "Text\n12 a"],
    ["See:\n\n``", "See:\n"],
    ["See:\n\n```js", "See:\n\n```js"],
    ["| a | b |\n|--", ""],
    ["T\n| a | b |\n|---|---|\n", "T"],
    ["| a |\n|---|\n| 1 |\n| 2", "| a |\n|---|\n| 1 |\n| 2"],
    ["a **b", "a **b"],
    ["", ""],
  ]) {
    assert.equal(settled(text), kept, JSON.stringify(text));
  }
});

test("each beginning of an answer is read, and what stood stays", () => {
  const text = "Look:\n\n1. one\n   - *deep* `x`\n2. two\n\n```py\nprint('<b>')\n```\n\n| a | b |\n|---|---|\n| 1 | [l](https://b.c) |\n\nEnd.";
  let kinds = [];
  for (let end = 1; end <= text.length; end++) {
    const nodes = nodesOf(text.slice(0, end), true);
    const now = nodes.filter(Boolean).map(({ type }) => type);
    assert.deepEqual(now.slice(0, kinds.length), kinds, `at ${JSON.stringify(text.slice(0, end).slice(-12))}`);
    kinds = now;
  }
  assert.deepEqual(kinds, ["p", "ol", "pre", "div", "p"]);
});
