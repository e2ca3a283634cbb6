// One version: what it learnt from, what the checks found, what it changed, and its history.
import { html } from "../../lib.js";
import { Badge, VersionBadge } from "../../parts/badge.js";
import { Pairs } from "../../parts/pairs.js";
import { Time } from "../../parts/time.js";
import { Unlearnt } from "../../parts/unlearnt.js";
import { Verdict } from "../../parts/verdict.js";
import { count, learntBy, stateOf, taughtBy, versionName } from "../../parts/words.js";
import { address } from "../../router.js";

// `version`: as GET /burnish/adapters/{n}; `list`: as GET /burnish/adapters. `children`: what can be done with it.
export function Details({ version, list, children }) {
  const [word, tone] = stateOf(version, list);
  return html`<div class="page">
    <div class="spread">
      <h2 class="line-up"><${VersionBadge} version=${version.version} live=${list.live} /><${Badge} tone=${tone}>${word}<//></h2>
      <div class="line-up">${children}</div>
    </div>
    ${version.manifest ? html`<${Trained} version=${version} />` : html`<${Base} alone=${!list.adapters.length} />`}
    <${History} events=${version.events} />
  </div>`;
}

function Base({ alone }) {
  return html`<p>The base model as it was published. It has learnt nothing from you, and stays as it is.</p>
    ${alone && html`<p>The first version is made when enough answers are rated; <a href=${address("learning")}>Learning</a> shows how many are missing.</p>`}`;
}

function Trained({ version }) {
  return html`<${LearntFrom} version=${version} />
    <section class="stack" aria-labelledby="found">
      <h2 id="found">What the checks found</h2>
      ${version.verdict ? html`<${Verdict} verdict=${version.verdict} />` : html`<p class="muted">${version.reason}</p>`}
    </section>
    <section class="stack" aria-labelledby="changed">
      <h2 id="changed">Before and after</h2>
      <${Pairs} version=${version} />
    </section>`;
}

function LearntFrom({ version }) {
  const { manifest, teachers, parent, created_at: at } = version;
  return html`<section class="stack" aria-labelledby="learnt">
    <h2 id="learnt">What it learnt from</h2>
    <p>${taughtBy(version)}${!version.episodes && ` (${learntBy(manifest.objective)})`}. It was made <${Time} at=${Date.parse(at) / 1000} /> from ${versionName(parent)}.
      ${manifest.held_out.length > 0 && html` ${count(manifest.held_out.length, "more rating")} tested it.`}</p>
    ${teachers.length > 0 && html`<${Teachers} teachers=${teachers} />`}
    <${Unlearnt} unlearnt=${manifest.unlearnt} />
    <details>
      <summary>Settings and figures of its training</summary>
      <dl class="facts small">${figures(manifest).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="num">${value}</dd></div>`)}</dl>
    </details>
  </section>`;
}

const COLUMNS = [
  ["good", "Good"],
  ["bad", "Bad"],
  ["comments", "Comments"],
  ["corrections", "Corrections"],
  ["preferences", "Preferences"],
];

function Teachers({ teachers }) {
  const used = COLUMNS.filter(([key]) => teachers.some((each) => each[key]));
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label="Who rated"><table class="table">
    <thead><tr><th scope="col">Rater</th>${used.map(([key, name]) => html`<th key=${key} scope="col" class="n">${name}</th>`)}</tr></thead>
    <tbody>${teachers.map((each) => html`<tr key=${each.rater}><td>${each.rater}</td>${used.map(([key]) => html`<td key=${key} class="n">${each[key]}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

function figures({ metrics, hyperparameters, objective, run_id: run }) {
  const found = { objective, run, ...metrics, ...hyperparameters };
  return Object.entries(found)
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => [
      name.replaceAll("_", " "),
      typeof value === "number" ? number.format(value) : typeof value === "string" ? value : JSON.stringify(value),
    ]);
}

const EVENTS = { live: "put to use", retired: "replaced", rejected: "failed the checks", candidate: "not in use", pruned: "deleted to free space" };

function History({ events }) {
  if (!events.length) return null;
  return html`<section aria-labelledby="history">
    <h2 id="history">History</h2>
    <ol class="history">${events.map(
      (event, place) => html`<li key=${place}>
      <span class="line-up"><strong>${EVENTS[event.state] ?? event.state}</strong><span class="muted small"><${Time} at=${Date.parse(event.at) / 1000} /></span></span>
      <details><summary>Why</summary><p class="small">${event.reason}</p></details>
    </li>`,
    )}</ol>
  </section>`;
}
