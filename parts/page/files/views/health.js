// Health: whether everything works, and what to do if not.

import { get } from "../api.js";
import { loadStatus } from "../events.js";
import { useKeys } from "../keys.js";
import { html, useEffect, useState } from "../lib.js";
import { Button } from "../parts/button.js";
import { Icon } from "../parts/icon.js";
import { Locked, useMay } from "../parts/may.js";
import { Note } from "../parts/note.js";
import { bytes, count, counted } from "../parts/number.js";
import { sentence } from "../parts/text.js";
import { Time } from "../parts/time.js";
import { useStore } from "../store.js";

export function View() {
  const status = useStore((state) => state.status);
  const mayCheck = useMay("read");
  const [checks, check] = useChecks(mayCheck);
  useKeys("Health", mayCheck ? [{ key: "c", does: "Check again", run: check }] : []);
  useEffect(() => void loadStatus(), []);
  return html`<header class="view-head">
      <h1>Health</h1>
      ${mayCheck && html`<div class="end"><${Button} keys="c" busy=${checks.busy} onClick=${check}>Check again<//></div>`}
    </header>
    <div class="page">
      ${status && html`<${Verdict} status=${status} findings=${checks.findings} /><${Figures} status=${status} /><${Engine} status=${status} />`}
      ${mayCheck ? html`<${Findings} checks=${checks} />` : html`<${Locked} what="The list of checks" />`}
    </div>`;
}

function useChecks(allowed) {
  const [checks, set] = useState(/** @type {{busy: boolean, error?: any, findings?: any[]}} */ ({ busy: true }));
  const check = async () => {
    set((old) => ({ ...old, busy: true }));
    try {
      set({ busy: false, ...(await get("/burnish/doctor")) });
    } catch (error) {
      set({ busy: false, error });
    }
  };
  useEffect(() => void (allowed && check()), [allowed]);
  return /** @type {const} */ ([checks, check]);
}

function Verdict({ status: { engine, log }, findings = [] }) {
  const troubles = [engine.trouble, log.trouble].filter(Boolean);
  const failed = findings.filter(({ level }) => level === "fail").map(({ what }) => what);
  if (troubles.length) {
    return html`<${Note} tone="bad" title="Something needs your attention.">${troubles.map((text) => html`<p>${sentence(text)}</p>`)}<//>`;
  }
  if (failed.length) return html`<${Note} tone="bad" title="A check failed."><p>See ${failed.join(", ")} below.</p><//>`;
  if (engine.obstacle) {
    return html`<${Note} tone="warn" title="It answers, but it can't learn yet."><p>${sentence(engine.obstacle)}</p><//>`;
  }
  return html`<${Note} tone="good" title="Everything works."><p>The engine answers, every answer is kept, and ratings can teach.</p><//>`;
}

function Figures({ status: { answering, log, counts } }) {
  const figures = [
    [count(answering), answering === 1 ? "answer is being written" : "answers are being written"],
    [count(log.waiting), log.waiting === 1 ? "answer waits to be stored" : "answers wait to be stored"],
    [count(counts.completions), `answers are stored, ${count(counts.ratings)} rated and ${count(counts.comments)} commented`],
    [bytes(log.size_bytes), `is what they take; ${bytes(log.free_bytes)} of the disk is free`],
  ];
  return html`<section class="strip" aria-label="Figures">
    ${figures.map(([figure, said]) => html`<p class="figure" key=${said}><b>${figure}</b><span>${said}</span></p>`)}
  </section>`;
}

const STATES = { up: "It runs.", starting: "It is starting.", down: "It stopped, and burnish starts it again." };

function Engine({ status: { version, upstream, upstreams, live, engine } }) {
  const { started, window, way } = engine;
  const embedded = upstream.startsWith("embedded:");
  const needsKey = useStore(({ whoami }) => whoami?.needs_key); // a link can't carry one
  const facts = [
    ["Model", embedded ? upstream.slice("embedded:".length) : null],
    ["Address", embedded ? "burnish runs the model itself" : upstream.replaceAll(",", ", ")],
    ["State", started && `${started.name}, started by burnish. ${STATES[started.state] ?? started.state}`],
    ["Restarts", started?.restarts ? count(started.restarts) : null],
    ["Its log", started?.log],
    ["Versions", way && `can be changed while it runs, as ${way}; ${counted(live.resident.length, "version")} loaded`],
    ["Requests", window && `${counted(window.parallel, "request")} at a time, each up to ${count(window.context)} tokens with its answer`],
    ...upstreams.map((each) => [each.name, each.trouble ?? `${each.url} answers for ${each.models.join(", ")}`]),
    ["burnish", version],
  ];
  return html`<section class="stack">
    <div class="spread">
      <h2>Engine</h2>
      ${!embedded && !needsKey && html`<a href="/burnish/engine/" target="_blank" rel="noopener">Open the engine's own page <${Icon} name="external" /></a>`}
    </div>
    <dl class="facts">
      ${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
  </section>`;
}

const ORDER = ["fail", "warn", "ok"];
const ICONS = { ok: "check", warn: "warn", fail: "cross" };
const LEVELS = { ok: "Fine", warn: "Warning", fail: "Failed" };

function Findings({ checks: { busy, error, findings = [], checked_at: at } }) {
  const worstFirst = ORDER.flatMap((wanted) => findings.filter(({ level }) => level === wanted));
  return html`<section class="stack" aria-busy=${busy ? "true" : undefined}>
    <div class="spread"><h2>Checks</h2><span class="muted small">${busy ? "Checking …" : at && html`checked <${Time} at=${at} />`}</span></div>
    ${error && html`<${Note} tone="bad" title="The checks couldn't run."><p>${error.message}</p><//>`}
    <ul class="findings">
      ${worstFirst.map(
        ({ level, what, text }, index) => html`<li key=${index} class=${level}>
          <${Icon} name=${ICONS[level]} /><h3><span class="for-readers">${LEVELS[level]}: </span>${what[0].toUpperCase() + what.slice(1)}</h3><p>${text}</p>
        </li>`,
      )}
    </ul>
  </section>`;
}
