// Learning: what is missing until the next training, how a training goes, and what it found.

import { send } from "../api.js";
import { useKeys } from "../keys.js";
import { html, useState } from "../lib.js";
import { VersionBadge } from "../parts/badge.js";
import { Button } from "../parts/button.js";
import { Loaded, useLoaded } from "../parts/load.js";
import { useMay } from "../parts/may.js";
import { Note } from "../parts/note.js";
import { Pairs } from "../parts/pairs.js";
import { Time } from "../parts/time.js";
import { failed } from "../parts/toast.js";
import { Unlearnt } from "../parts/unlearnt.js";
import { Verdict } from "../parts/verdict.js";
import { address } from "../router.js";
import { update, useStore } from "../store.js";
import { Next } from "./learning/next.js";
import { Ending, RunDetails } from "./learning/run.js";
import { Train, useTraining } from "./learning/train.js";
import { Promote } from "./versions/promote.js";

const RUNS = 30; // the latest; a run takes minutes, so that is weeks for most people

export function View({ rest: [chosen] }) {
  const learner = useStore(({ status }) => status?.learner);
  if (!learner) return html`<${Head} /><div class="page"><p class="muted">Loading …</p></div>`;
  if (!learner.needed) return html`<${Head} /><div class="page"><${Note} title="burnish doesn't train this model."><p>${learner.reason}</p><//></div>`;
  return html`<${Steered} learner=${learner} chosen=${chosen} />`;
}

function Head({ children }) {
  return html`<header class="view-head"><h1>Learning</h1><div class="end">${children}</div></header>`;
}

function Steered({ learner, chosen }) {
  const training = useTraining();
  const [promoting, setPromoting] = useState(false);
  const off = learner.state === "off";
  const steers = useMay("steer") && !off;
  const paused = learner.state === "paused";
  const train = () => training.ask().catch((error) => failed("The training couldn't be planned", error, train));
  const pause = async () => {
    try {
      const now = await send("POST", paused ? "/burnish/resume" : "/burnish/pause", {});
      update(({ status }) => ({ status: status && { ...status, learner: now } }));
    } catch (error) {
      failed(paused ? "Training is still paused" : "Training wasn't paused", error, pause);
    }
  };
  const can = steers && !learner.run;
  useKeys(
    "Learning",
    [
      can && { key: "t", does: "Train now", run: train },
      steers && { key: "p", does: paused ? "Let trainings start by themselves" : "Pause trainings", run: pause },
    ].filter(Boolean),
  );
  return html`<${Head}>
      ${steers && html`<${Button} keys="p" onClick=${pause}>${paused ? "Resume" : "Pause"}<//>`}
      ${steers && html`<${Button} tone="main" keys="t" disabled=${!can} onClick=${train}>Train now<//>`}
    <//>
    <div class="page">
      ${paused && html`<${Note} tone="warn" title="Trainings are paused."><p>None starts by itself until you resume. Ratings are kept.</p><//>`}
      ${
        learner.waiting &&
        html`<${Note} tone="good" title=${`v${learner.waiting.version} passed the checks and waits for you.`}>
        <div class="line-up">${steers && html`<${Button} tone="main" onClick=${() => setPromoting(true)}>Use v${learner.waiting.version}<//>`}<a href=${address("versions", learner.waiting.version)}>What it changed</a></div>
      <//>`
      }
      ${!learner.run && html`<${Next} learner=${learner} />`}
      <${Runs} under=${learner.run?.id} chosen=${chosen} />
    </div>
    ${training.asked && html`<${Train} ...${training.asked} onClose=${training.close} />`}
    ${promoting && learner.waiting && html`<${Promote} number=${learner.waiting.version} onClose=${() => setPromoting(false)} />`}`;
}

function Runs({ under, chosen }) {
  const changed = useStore(({ versionsChanged, runs }) => versionsChanged + runs.size);
  const loaded = useLoaded(`/burnish/runs?limit=${RUNS}`, `${under} ${changed}`);
  return html`<${Loaded} loaded=${loaded}>${({ runs }) => {
    const shown = runs.find(({ id }) => id === chosen) ?? runs[0];
    if (!shown) return html`<p class="muted">No training yet. The first one starts when enough answers are rated.</p>`;
    return html`<${Shown} run=${shown} latest=${shown === runs[0]} />
      ${runs.length > 1 && html`<${Earlier} runs=${runs} shown=${shown} />`}`;
  }}<//>`;
}

function Shown({ run, latest }) {
  const title = run.ended_at ? (latest ? "The latest training" : "An earlier training") : "Training now";
  return html`<section class="stack" aria-labelledby="run">
    <h2 id="run">${title}</h2>
    <${RunDetails} key=${run.id} id=${run.id} />
    ${run.ended_at && run.version && html`<${Result} key=${run.version} version=${run.version} failed=${run.status === "failed"} />`}
  </section>`;
}

function Result({ version, failed: stopped }) {
  const loaded = useLoaded(`/burnish/adapters/${version}`);
  return html`<${Loaded} loaded=${loaded}>${(found) => html`<div class="stack">
    <h2 class="line-up">What the checks found of <a href=${address("versions", version)}><${VersionBadge} version=${version} /></a></h2>
    ${found.verdict ? html`<${Verdict} verdict=${found.verdict} />` : html`<p class="muted">${stopped ? "Its training failed, so it wasn't checked." : found.reason}</p>`}
    <${Unlearnt} unlearnt=${found.manifest.unlearnt} />
    <h2>Before and after</h2>
    <${Pairs} version=${found} />
  </div>`}<//>`;
}

function Earlier({ runs, shown }) {
  return html`<section aria-labelledby="runs">
    <h2 id="runs">All trainings</h2>
    <ul class="rows">
      ${runs.map(
        (run) => html`<li key=${run.id}>
        <a href=${address("learning", run.id)} aria-current=${run === shown ? "true" : undefined}>
          <span class="row-head"><span class="line-up"><${Ending} run=${run} /></span><${Time} at=${run.started_at} /></span>
        </a>
      </li>`,
      )}
    </ul>
  </section>`;
}
