// One training run: its phases, how long it still takes, and its curves.
import { html } from "../../lib.js";
import { Badge, VersionBadge } from "../../parts/badge.js";
import { Chart } from "../../parts/chart.js";
import { Loaded, useLoaded } from "../../parts/load.js";
import { duration, Time } from "../../parts/time.js";
import { stepOf, taughtBy } from "../../parts/words.js";
import { useStore } from "../../store.js";

const PHASES = [
  ["answering", "Answers again, with your comments"],
  ["loading", "Loads the model"],
  ["preparing", "Reads what it learns from"],
  ["training", "Learns"],
  ["staging", "Loads the new version"],
  ["sampling", "Old and new version answer the same prompts"],
  ["facts", "Both answer simple questions"],
  ["scoring", "Compares their answers"],
  ["judging", "Decides"],
  ["swapping", "Puts the new version to use"],
];

const ENDINGS = {
  live: ["went into use", "good"],
  candidate: ["not put to use", "warn"],
  rejected: ["failed the checks", "bad"],
  failed: ["failed", "bad"],
  interrupted: ["stopped", "warn"],
};

export function RunDetails({ id }) {
  const told = useStore(({ runs }) => runs.get(id));
  // What is told of a run comes twice a second and without its curve, which grows with the steps.
  const loaded = useLoaded(`/burnish/runs/${id}`, told && `${told.status} ${told.progress?.phase} ${told.progress?.done}`);
  return html`<${Loaded} loaded=${loaded}>${(run) => html`<${Run} run=${{ ...run, ...told, curve: run.curve }} />`}<//>`;
}

function Run({ run }) {
  return html`<div class="stack">
    <p class="line-up"><${Ending} run=${run} /><span class="muted">began <${Time} at=${run.started_at} />${from(run)}</span></p>
    ${run.ended_at ? null : html`<${Phases} progress=${run.progress} />`}
    ${run.status === "failed" || run.status === "interrupted" ? html`<p>${run.reason}</p>` : null}
    <${Curves} curve=${run.curve} over=${run.ended_at} />
  </div>`;
}

// While it learns from rollouts, their number isn't known.
function from({ ratings, result }) {
  return ratings || result ? `, from ${taughtBy({ ...result, ratings })}` : "";
}

export function Ending({ run }) {
  const version = run.version && html`<${VersionBadge} version=${run.version} />`;
  const [word, tone] = ENDINGS[run.status] ?? ["under way", "accent"];
  return html`${version}<${Badge} tone=${tone}>${word}<//>`;
}

function Phases({ progress }) {
  const phases = progress?.steps === PHASES.length ? PHASES : PHASES.slice(1); // the first one is of comments alone
  const at = phases.findIndex(([name]) => name === (progress?.phase ?? "loading"));
  return html`<div class="stack">
    <ol class="phases" aria-label="Phases of this training">
      ${phases.map(([name, words], place) => html`<li key=${name} class=${place < at ? "over" : ""} aria-current=${place === at ? "step" : undefined}>${words}</li>`)}
    </ol>
    ${progress?.total ? html`<meter class="meter" min="0" max=${progress.total} value=${progress.done} aria-label=${`${progress.done} of ${progress.total}`} />` : null}
    <p class="muted small num">${left(progress)}</p>
  </div>`;
}

function left(progress) {
  if (!progress) return "It is being planned.";
  const { run_eta_s: whole, guessed } = progress;
  const parts = [
    `S${stepOf(progress).slice(1)}`,
    progress.total ? `${progress.done} of ${progress.total}` : null,
    progress.eta_s != null ? `about ${duration(progress.eta_s)} left in this one` : null,
    whole == null ? "how long it takes in all isn't known yet" : `about ${duration(whole)} left in all${guessed ? ", a guess for a first training" : ""}`,
  ];
  return parts.filter(Boolean).join(" · ");
}

function Curves({ curve, over }) {
  if (!curve) return over ? html`<p class="muted">No curves are kept of this training.</p>` : null;
  const { step, loss, margin, kl_per_token: distance } = curve;
  return html`<div class="stack">
    <div class="grid">
      <${Chart} title="Good ahead of bad" says="Higher: it tells good answers from bad ones." x=${step} y=${margin} />
      <${Chart} title="Error" says="Lower: it fits what it learns from better." x=${step} y=${loss} />
      <${Chart} title="Distance from base" says="Lower: it keeps more of what it was." x=${step} y=${distance} />
    </div>
    <details>
      <summary>What exactly is drawn</summary>
      <p class="small">Over the steps of training. Good ahead of bad: mean log-probability gained by good answers, less that by bad ones, in nats per token.
      Error: the loss. Distance: KL divergence from the base model, in nats per token.</p>
    </details>
  </div>`;
}
