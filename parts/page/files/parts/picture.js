// What burnish is, in one picture: questions pass through it to the model, and ratings come back as a better model.
import { html } from "../lib.js";

function Box({ x, children, mine }) {
  return html`<g class=${mine ? "box mine" : "box"}>
    <rect x=${x} y="10" width="132" height="44" rx="10" /><text x=${x + 66} y="37">${children}</text>
  </g>`;
}

export function Picture() {
  return html`<svg class="picture" viewBox="0 0 560 108" role="img" aria-label="Your agent asks burnish, burnish asks the model, and your ratings teach the model">
    <path class="flow" d="M134 32H212M348 32H426" />
    <path class="flow back" d="M280 56V92H492V58" />
    <text class="word" x="386" y="96">your ratings</text>
    <${Box} x=${1}>your agent<//><${Box} x=${214} mine=${true}>burnish<//><${Box} x=${427}>the model<//>
  </svg>`;
}
