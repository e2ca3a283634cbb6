// How many ratings are still missing until the next training, and why it waits.
import { html } from "../../lib.js";
import { commentsOf, count } from "../../parts/words.js";
import { address } from "../../router.js";
import { useStore } from "../../store.js";

export function Next({ learner }) {
  const { ready, needed } = learner;
  if (!needed) return html`<p>${learner.reason}</p>`;
  return html`<section class="stack" aria-labelledby="next">
    <h2 id="next">Next training</h2>
    <p class="why">${sentence(learner.reason)}</p>
    <p><b class="num">${commentsOf(learner)}</b>
      <meter class="meter" min="0" max=${needed.comments} value=${ready.new_comments} aria-label=${commentsOf(learner)} />
      <span class="muted small">Of answers that aren't good. <a href=${address("live")}>Say in Live what is wrong with them</a>.</span></p>
    <p>or all of these:</p>
    <div class="grid">
      <${Count} label="New ratings" have=${ready.new} want=${needed.new} />
      <${Count} label="Good" have=${ready.good} want=${needed.good} />
      <${Count} label="Bad" have=${ready.bad} want=${needed.bad} />
    </div>
    <${LeftOut} leftOut=${learner.left_out} />
    <${Rollouts} />
  </section>`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

function Count({ label, have, want }) {
  const name = `${label}: ${have} of ${want}`;
  return html`<div class="card figure">
    <b>${have}<small> of ${want}</small></b><span>${label}</span>
    <meter class="meter" min="0" max=${Math.max(want, 1)} value=${Math.min(have, Math.max(want, 1))} aria-label=${name}>${name}</meter>
  </div>`;
}

function LeftOut({ leftOut = {} }) {
  const reasons = Object.entries(leftOut);
  if (!reasons.length) return null;
  const total = reasons.reduce((sum, [, number]) => sum + number, 0);
  return html`<details>
    <summary>${count(total, "rated answer")} can't be learnt from</summary>
    <ul class="small">${reasons.map(([why, number]) => html`<li key=${why}>${number} × ${why}</li>`)}</ul>
  </details>`;
}

// Nothing learns from rollouts by itself, so it is said that they wait.
function Rollouts() {
  const rollouts = useStore(({ status }) => status?.rollouts);
  return Object.entries(rollouts?.ready ?? {}).map(
    ([task, number]) => html`<p key=${task} class="small">
    ${count(number, "rollout")} of the task “${task}” can be learnt from: <code>burnish train --rollouts ${quoted(task)}</code></p>`,
  );
}

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`); // for a shell
