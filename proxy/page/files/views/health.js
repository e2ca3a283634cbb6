// Health: whether everything works, and what to do if not.
import { html } from "../lib.js";
import { useStore } from "../store.js";
import { Icon } from "../parts/icon.js";
import { Note } from "../parts/note.js";

const number = new Intl.NumberFormat("en");

function View() {
  const status = useStore((state) => state.status);
  return html`<header class="view-head"><h1>Health</h1></header>
    <div class="page">${status ? html`<${Checks} status=${status} /><${Facts} status=${status} />` : html`<p class="muted">Loading …</p>`}</div>`;
}

function Checks({ status: { engine, log } }) {
  const found = [engine.trouble, log.trouble].filter(Boolean);
  if (!found.length) return html`<${Note} tone="good" title="Everything works."><p>The engine answers, and every answer is logged.</p><//>`;
  return found.map((text) => html`<${Note} tone="bad" title="Something needs your attention."><p>${text}</p><//>`);
}

function Facts({ status: { version, upstream, counts, learner, engine } }) {
  const facts = [
    ["Engine", upstream],
    ["Answers in the log", number.format(counts.completions)],
    ["Answers rated", number.format(counts.ratings)],
    ["Training", learner.reason],
    ["Window", engine.window && `${number.format(engine.window.tokens ?? 0)} tokens`],
    ["burnish", version],
  ];
  return html`<dl class="facts">
    ${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>
  <p><a href="/burnish/engine/" target="_blank" rel="noopener">Open the engine's own page <${Icon} name="external" /></a></p>`;
}

export default { path: "health", title: "Health", key: "H", View };
