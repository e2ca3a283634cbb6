// One message of the person, the answers to it, and what can be said of them.
import { html, useMemo, useState } from "../../lib.js";
import { Badge, VersionBadge } from "../../parts/badge.js";
import { Button } from "../../parts/button.js";
import { Note } from "../../parts/note.js";
import { Prose } from "../../parts/prose.js";
import { Text } from "../../parts/text.js";
import { toast } from "../../parts/toast.js";
import { chosenOf, isBlind, pairOf } from "./pairs.js";
import { judge, POINTS, rate, takeChoiceBack } from "./said.js";
import { changeTurn, regenerate, retry } from "./talk.js";

const letter = (turn, key) => String.fromCharCode(65 + turn.answers.findIndex((answer) => answer.key === key));

// `selected`: key of the answer that keys are about. `latest`: no message follows, so it can be asked again.
export function Turn({ turn, latest, live, selected, onSelect, onComment }) {
  const [all, setAll] = useState(false);
  const chosen = chosenOf(turn);
  const several = turn.answers.length > 1;
  const pair = pairOf(turn);
  const folded = several && !latest && !all && !pair;
  const shown = folded ? [chosen] : turn.answers;
  return html`<section class="turn" aria-label="Message and answers">
    <div class="asked"><${Text}>${turn.prompt}<//></div>
    <div class=${`answers ${shown.length > 1 ? "several" : ""}`}>
      ${shown.map(
        (answer) => html`<${Answer}
          key=${answer.key}
          ...${{ turn, answer, latest, live, several, onSelect, onComment }}
          chosen=${several && answer === chosen}
          paired=${Boolean(pair) && (answer === pair.left || answer === pair.right)}
          selected=${answer.key === selected}
        />`,
      )}
    </div>
    ${folded && html`<p class="others"><${Button} tone="quiet" onClick=${() => setAll(true)}>Show all ${turn.answers.length} answers<//></p>`}
    ${pair && html`<${Compare} turn=${turn} pair=${pair} latest=${latest} />`}
    ${several && turn.judged.length > 0 && !folded && html`<${Judged} turn=${turn} />`}
  </section>`;
}

function Answer({ turn, answer, latest, live, several, chosen, paired, selected, onSelect, onComment }) {
  const { key, state, text, thought } = answer;
  const name = several ? `Answer ${letter(turn, key)}` : "Answer";
  return html`<article class=${`answer ${paired ? "paired" : ""} ${selected ? "selected" : ""}`} aria-label=${name} id=${`answer-${key}`}>
    <header>
      ${several && html`<h2>${letter(turn, key)}</h2>`}
      ${isBlind(turn) ? html`<${Badge} title="You see which model it was once you have chosen">model hidden<//>` : answer.version !== undefined && html`<${VersionBadge} version=${answer.version} model=${answer.served} live=${live} />`}
      ${chosen && html`<${Badge} tone="accent" title="The model is told this answer when you go on">goes on from here<//>`}
      ${answer.rated && html`<${Badge} tone=${toneOf(answer.rated)}>${inPoints(answer.rated)}<//>`}
    </header>
    ${thought && html`<details class="thought"><summary>Thought</summary><${Text}>${thought}<//></details>`}
    ${text ? html`<${Prose} live=${state === "writing"}>${text}<//>` : state === "writing" && html`<p class="waiting muted">${thought ? "Thinking" : "Waiting for the first word"} …</p>`}
    ${state === "done" && !text && html`<p class="muted">The model answered without a word.</p>`}
    <${Ending} turn=${turn} answer=${answer} latest=${latest} />
    ${answer.comments?.map((each) => html`<div class="comment"><b>Your comment</b><${Text}>${each}<//></div>`)}
    ${state === "done" && answer.id && html`<${Actions} ...${{ turn, answer, latest, several, chosen, selected, onSelect, onComment }} />`}
  </article>`;
}

function toneOf(rated) {
  if (rated === "good" || /^[45]/.test(rated)) return "good";
  return rated === "bad" || /^[12]/.test(rated) ? "bad" : "";
}

function inPoints(rated) {
  const word = POINTS[parseInt(rated, 10) - 1];
  return word ? `${rated}: ${word}` : rated;
}

// Why the answer ended, unless it ended as it should.
function Ending({ turn, answer, latest }) {
  const { state, error, finish } = answer;
  const again = latest && html`<${Button} onClick=${() => retry(turn, answer)}>Ask again<//>`;
  if (state === "failed") return html`<${Note} tone="bad" title="There is no whole answer."><p>${error}</p>${again}<//>`;
  if (state === "stopped") return html`<${Note} title="Stopped."><p>${error ?? "Nothing is learnt from an unfinished answer."}</p>${again}<//>`;
  return finish === "length" && html`<p class="muted small">Cut off at the longest length. Beside the message field you can allow a longer one.</p>`;
}

function Actions({ turn, answer, latest, several, chosen, selected, onSelect, onComment }) {
  const points = (count) => `${count} of 5`;
  const keys = (key) => (selected ? key : undefined);
  const copy = () =>
    navigator.clipboard.writeText(answer.text).then(
      () => toast("Copied."),
      () => toast("The browser didn't allow copying.", { tone: "bad" }),
    );
  return html`<footer class="actions" onFocusIn=${() => onSelect(answer.key)}>
    <${Button} tone="good" icon="good" keys=${keys("g")} pressed=${answer.rated === "good"} onClick=${() => rate(turn, answer, "good")}>Good<//>
    <${Button} tone="bad" icon="bad" keys=${keys("b")} pressed=${answer.rated === "bad"} onClick=${() => rate(turn, answer, "bad")}>Bad<//>
    <span class="points" role="group" aria-label="Points">
      ${POINTS.map(
        (word, index) =>
          html`<${Button} key=${word} title=${word} aria-label=${`${index + 1}: ${word}`} pressed=${answer.rated === points(index + 1)} onClick=${() => rate(turn, answer, index + 1)}>${index + 1}<//>`,
      )}
    </span>
    <${Button} tone="quiet" keys=${keys("c")} onClick=${() => onComment(turn, answer)}>Comment<//>
    ${latest && (chosen || !several) && html`<${Button} tone="quiet" keys="r" onClick=${() => regenerate(turn)}>Another answer<//>`}
    ${several && latest && !chosen && html`<${Button} tone="quiet" onClick=${() => changeTurn(turn.key, { chosen: answer.key })}>Go on from this<//>`}
    <${Button} tone="quiet icon-only" icon="copy" aria-label="Copy" title="Copy" onClick=${copy} />
  </footer>`;
}

function Compare({ turn, pair, latest }) {
  const { left, right } = pair;
  const named = [left, right].map(({ key }) => letter(turn, key));
  const keys = (key) => (latest ? key : undefined);
  return html`<div class="compare" role="group" aria-label="Which answer is better?">
    <strong>Which is better?</strong>
    <${Button} keys=${keys("ArrowLeft")} onClick=${() => judge(turn, pair, left)}>${named[0]}<//>
    <${Button} keys=${keys("=")} onClick=${() => judge(turn, pair, null)}>Equal<//>
    <${Button} keys=${keys("ArrowRight")} onClick=${() => judge(turn, pair, right)}>${named[1]}<//>
    <${Button} tone="quiet" keys=${keys("s")} onClick=${() => changeTurn(turn.key, { skipped: true })}>Skip<//>
  </div>`;
}

function Judged({ turn }) {
  const sentences = useMemo(() => turn.judged.map((said) => inWords(turn, said)), [turn]);
  return html`<ul class="judged">
    ${turn.judged.map(
      (said, index) => html`<li key=${index}>
        <span>${sentences[index]}</span>
        <${Button} tone="quiet" aria-label=${`Take back: ${sentences[index]}`} onClick=${() => takeChoiceBack(turn, said)}>Take back<//>
      </li>`,
    )}
  </ul>`;
}

function inWords(turn, { a, b, winner }) {
  const [one, other] = [a, b].map((key) => letter(turn, key));
  if (!winner) return `You found ${one} and ${other} equal.`;
  return winner === a ? `You found ${one} better than ${other}.` : `You found ${other} better than ${one}.`;
}
