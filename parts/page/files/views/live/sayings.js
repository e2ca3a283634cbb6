// What people said of an answer, and what came of it.
import { html } from "../../lib.js";
import { Badge, RatingBadge } from "../../parts/badge.js";
import { Button } from "../../parts/button.js";
import { line, Text } from "../../parts/text.js";
import { Time } from "../../parts/time.js";
import { POINTS, quoted, takeBack } from "./rating.js";

const WHOLE = { turn: "about the whole task", conversation: "about the whole conversation" };

export function Sayings({ whole }) {
  const said = whole.feedback.filter((each) => each.undone_at == null && !each.superseded_by);
  if (!said.length) return null;
  return html`<section class="sayings" aria-label="What was said of it">
    <h2>What was said of it</h2>
    <ul>${said.map((each) => html`<${Saying} key=${each.id} said=${each} whole=${whole} />`)}</ul>
  </section>`;
}

function Saying({ said, whole }) {
  const { rater, created_at, comment, correction, preferred_over: worse, scope, source } = said;
  return html`<li class="card saying">
    <div class="line-up">
      <${RatingBadge} rating=${said.reward} word=${word(said)} />
      ${worse && html`<${Badge} tone="good">better than another answer<//>`}
      <span class="muted small">
        ${rater === "local" ? "you" : line(rater, 60)}${source !== "human" && ` (${source})`} · <${Time} at=${created_at} />
        ${WHOLE[scope] && ` · ${WHOLE[scope]}`} · ${effect(said)}
      </span>
      <${Button} tone="quiet" onClick=${() => takeBack(said, quoted(whole))}>Take back<//>
    </div>
    ${comment && html`<${Text}>${comment}<//>`}
    ${correction && html`<p class="label">The reply that was wanted</p><${Text}>${correction}<//>`}
  </li>`;
}

function word({ reward, scale }) {
  if (reward == null) return "";
  if (scale === "likert") return `${2 * reward + 3} of 5 (${POINTS[2 * reward + 2]})`;
  return reward === 1 ? "good" : reward === -1 ? "bad" : reward.toFixed(2);
}

function effect({ usable, reason, learnt_by: version }) {
  if (version) return `learnt by version ${version}`;
  if (!usable) return `not learnt from: ${reason}`;
  return reason ? `waits for training; ${reason}` : "waits for training";
}
