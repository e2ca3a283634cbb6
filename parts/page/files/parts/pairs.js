// Answers of two versions to the same prompts, side by side.
import { html, useState } from "../lib.js";
import { VersionBadge } from "./badge.js";
import { Button } from "./button.js";
import { Text } from "./text.js";

const SHOWN = 3; // at first; a run has up to 48
const FOLD = 700; // characters of an answer

// `version`: as GET /burnish/adapters/{n}.
export function Pairs({ version }) {
  const [all, setAll] = useState(false);
  const pairs = pairsOf(version);
  if (!pairs.length) return html`<p class="muted">No answers of before and after are kept for this version.</p>`;
  const shown = all ? pairs : pairs.slice(0, SHOWN);
  return html`<div class="stack">
    ${shown.map((pair, place) => html`<${Pair} key=${place} pair=${pair} />`)}
    ${shown.length < pairs.length && html`<div><${Button} onClick=${() => setAll(true)}>Show ${pairs.length - shown.length} more<//></div>`}
  </div>`;
}

// The telling ones first: those that the checks chose, with the reason.
function pairsOf({ version, verdict, samples = [] }) {
  const compared = samples[0]?.before.version; // all of one run were compared with the same version
  const chosen = (verdict?.examples ?? []).map(({ prompt, why, before, after }) => {
    const whole = samples.find((sample) => begins(sample.prompt, prompt) && begins(said(sample.after), after));
    return {
      prompt: whole?.prompt ?? prompt,
      why,
      before: whole?.before ?? { reply: before, version: compared },
      after: whole?.after ?? { reply: after, version },
      whole,
    };
  });
  const taken = new Set(chosen.map(({ whole }) => whole));
  return [...chosen, ...samples.filter((sample) => !taken.has(sample))];
}

// Examples are cut, and end in "…" then.
const begins = (text, part) => text === part || (part.endsWith("…") && text.startsWith(part.slice(0, -1)));

function Pair({ pair: { prompt, why, before, after } }) {
  return html`<article class="pair">
    <header><${Text} fold=${400} class="pair-prompt">${prompt}<//>${why && html`<span class="muted small">${why}</span>`}</header>
    <${Side} name="Before" answer=${before} />
    <${Side} name="After" answer=${after} />
  </article>`;
}

function Side({ name, answer }) {
  return html`<section>
    <h3>${name} ${answer.version != null && html`<${VersionBadge} version=${answer.version} />`}</h3>
    <${Text} fold=${FOLD}>${said(answer) || "(no text)"}<//>
  </section>`;
}

function said({ reply, tool_calls: calls = [], error, finished = true }) {
  const called = calls.map(({ function: { name, arguments: given } = {} }) => `→ ${name}(${given ?? ""})`);
  const broken = error ? [`(the engine couldn't read this answer: ${error})`] : [];
  return [reply, ...called, ...broken].filter(Boolean).join("\n") + (finished ? "" : " …");
}
