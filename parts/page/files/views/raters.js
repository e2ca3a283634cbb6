// Raters: who rates how, how often people agree, and how much each of them counts.
import { html } from "../lib.js";
import { Loaded, useLoaded } from "../parts/load.js";
import { Note } from "../parts/note.js";
import { count, counted } from "../parts/number.js";
import { line } from "../parts/text.js";
import { useStore } from "../store.js";

const FEW = 8; // answers in common; fewer say nothing about agreement

export function View() {
  const said = useStore(({ status }) => `${status?.counts.ratings} ${status?.counts.comments}`);
  const stale = useStore((state) => state.listsStale);
  const loaded = useLoaded("/burnish/raters", `${said} ${stale}`);
  return html`<header class="view-head"><h1>Raters</h1></header>
    <div class="page"><${Loaded} loaded=${loaded}>${({ data }) => (data.length ? html`<${Found} raters=${data} />` : html`<${Nobody} />`)}<//></div>`;
}

function Nobody() {
  return html`<${Note} title="Nobody has rated or commented on an answer yet.">
    <p>Open Live, choose an answer and press g, b or c. Whoever does so appears here.</p>
  <//>`;
}

function Found({ raters }) {
  return html`<p class="muted">Your model learns from everybody in this list. Each answer counts once per person.</p>
    <ul class="raters" aria-label="Raters">${raters.map((rater) => html`<${Rater} key=${rater.name} rater=${rater} alone=${raters.length === 1} />`)}</ul>
    <details>
      <summary>How much each person counts</summary>
      <p>Everybody counts alike at first. To change that, set <code>rater_weights</code> in the section <code>[train]</code> of burnish's
        configuration, for example <code>rater_weights = { alice = 2.0, bob = 0.5 }</code>. With 0, the ratings of a person are ignored.</p>
    </details>`;
}

function Rater({ rater, alone }) {
  const { name, good, bad, commented, weight } = rater;
  const rated = good + bad;
  const words = `${counted(good, "answer")} good, ${count(bad)} bad`;
  return html`<li class="card">
    <h2>${line(name) || "(no name)"}</h2>
    <div class="rater-ratings">
      <meter class="meter rater-meter" min="0" max=${Math.max(rated, 1)} value=${good} aria-label=${`Ratings of ${line(name)}`}>${words}</meter>
      <p class="spread small"><span class="rater-good">${count(good)} good</span><span class="rater-bad">${count(bad)} bad</span></p>
      ${commented > 0 && html`<p class="small">${count(commented)} commented</p>`}
    </div>
    <div>${alone ? html`<p class="muted small">Nobody else rates yet.</p>` : html`<${Agreement} rater=${rater} />`}
      <p class="small">${counts(weight)}</p></div>
  </li>`;
}

function Agreement({ rater: { compared, agreed, by_chance: chance } }) {
  if (!compared) return html`<p class="muted small">Nothing to compare: others rated other answers, or were split.</p>`;
  const share = `Agrees with the others on ${count(agreed)} of ${counted(compared, "answer")}`;
  if (compared < FEW) return html`<p class="small">${share}. <span class="muted">That is too few to tell.</span></p>`;
  if (agreed <= chance) return html`<p class="small rater-bad">${share}: no more than by chance. This person seems to judge by other standards.</p>`;
  return html`<p class="small">${share}; by chance it would be ${count(Math.round(chance))}.</p>`;
}

function counts(weight) {
  if (weight === 0) return "These ratings are ignored.";
  return weight === 1 ? "Counts like everybody else." : `Counts ${weight} times as much.`;
}
