// What the checks found of a version. The words are burnish's own, so terminal and page say the same.
import { html } from "../lib.js";
import { Icon } from "./icon.js";

const TONES = { passed: "good", rejected: "bad", undecided: "warn" };
const MARKS = { true: ["good", "check", "Yes"], false: ["bad", "cross", "No"], null: ["", null, "Not decided"] };

export function Verdict({ verdict }) {
  return html`<div class="verdict stack">
    <p class=${`headline ${TONES[verdict.outcome] ?? ""}`}>${verdict.headline}</p>
    ${verdict.groups.map(
      ({ kind, title }) => html`<section key=${kind}>
        <h3>${sentence(title)}</h3>
        <ul class="checks">${verdict.checks.filter((check) => check.kind === kind).map((check) => html`<${Check} key=${check.name} check=${check} />`)}</ul>
      </section>`,
    )}
    <${Figures} checks=${verdict.checks} />
  </div>`;
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

function Check({ check: { kind, passed, plain } }) {
  const [tone, icon, word] = kind === "reported" ? ["", null, ""] : MARKS[passed];
  return html`<li class=${tone}>
    ${icon ? html`<${Icon} name=${icon} />` : html`<span class="icon" aria-hidden="true">·</span>`}
    <span>${word && html`<span class="for-readers">${word}: </span>`}${plain}</span>
  </li>`;
}

function Figures({ checks }) {
  const exact = checks.filter(({ plain, text }) => plain !== text);
  if (!exact.length) return null;
  return html`<details>
    <summary>Exact figures</summary>
    <ul class="stack small">${exact.map(({ name, text }) => html`<li key=${name}>${text}</li>`)}</ul>
  </details>`;
}
