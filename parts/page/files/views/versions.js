// Versions: a timeline, and what each of them learnt and changed.

import { useKeys } from "../keys.js";
import { html, useState } from "../lib.js";
import { Badge, VersionBadge } from "../parts/badge.js";
import { Button } from "../parts/button.js";
import { Loaded, useLoaded } from "../parts/load.js";
import { useMay } from "../parts/may.js";
import { Time } from "../parts/time.js";
import { learntBy, stateOf, taughtBy, versionName } from "../parts/words.js";
import { address, go } from "../router.js";
import { useStore } from "../store.js";
import { Details } from "./versions/details.js";
import { GoBack, Promote } from "./versions/promote.js";
import { Traffic } from "./versions/traffic.js";

const PAGE = 50; // versions that the timeline shows at first
const BASE = { version: 0, state: "available" };

export function View({ rest: [chosen] }) {
  const changed = useStore(({ versionsChanged }) => versionsChanged);
  const learner = useStore(({ status }) => status?.learner);
  const loaded = useLoaded("/burnish/adapters", changed);
  if (learner && !learner.needed) {
    return html`<header class="view-head"><h1>Versions</h1></header><div class="page"><p>burnish doesn't train this model, so there are no versions: ${learner.reason}</p></div>`;
  }
  return html`<${Loaded} loaded=${loaded}>${(list) => html`<${Timeline} list=${list} changed=${changed} chosen=${chosen} />`}<//>`;
}

function Timeline({ list, changed, chosen }) {
  const [limit, setLimit] = useState(PAGE);
  const versions = [...list.adapters].reverse();
  const rows = [...versions.slice(0, limit), BASE];
  const number = chosen === undefined ? null : Number(chosen);
  const shown = number ?? list.live; // beside the list, where there is room for both
  const move = (by) => {
    const at = rows.findIndex(({ version }) => version === shown);
    const next = rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)];
    go(["versions", next.version], { replace: true });
  };
  const [back, setBack] = useState(false);
  const steers = useMay("steer") && list.previous !== null;
  useKeys(
    "Versions",
    [
      { key: ["j", "ArrowDown"], does: "Next version", run: () => move(1), repeats: true },
      { key: ["k", "ArrowUp"], does: "Previous version", run: () => move(-1), repeats: true },
      steers && { key: "r", does: `Go back to ${versionName(list.previous)}`, run: () => setBack(true) },
    ].filter(Boolean),
  );
  return html`<header class="view-head"><h1>Versions</h1><div class="end">
      ${number !== null && html`<a class="button" href=${address("versions")}>All versions</a>`}
      ${steers && html`<${Button} keys="r" onClick=${() => setBack(true)}>Go back to ${versionName(list.previous)}<//>`}
    </div></header>
    <div class=${`split ${number === null ? "" : "chosen"}`}>
      <nav aria-label="Versions">
        <div class="page"><${Traffic} live=${list.live} changed=${changed} /></div>
        <ul class="rows">${rows.map((row) => html`<li key=${row.version}><${Row} row=${row} list=${list} chosen=${row.version === shown} /></li>`)}</ul>
        ${limit < versions.length && html`<div class="page"><${Button} onClick=${() => setLimit(limit + PAGE)}>Show ${versions.length - limit} earlier<//></div>`}
      </nav>
      <${Chosen} key=${shown} number=${shown} list=${list} changed=${changed} />
    </div>
    ${back && html`<${GoBack} to=${list.previous} onClose=${() => setBack(false)} />`}`;
}

function Row({ row, list, chosen }) {
  const [word, tone] = stateOf(row, list);
  return html`<a href=${address("versions", row.version)} aria-current=${chosen ? "true" : undefined}>
    <span class="row-head"><span class="line-up"><${VersionBadge} version=${row.version} live=${list.live} /><${Badge} tone=${tone}>${word}<//></span>
      ${row.created_at && html`<${Time} at=${Date.parse(row.created_at) / 1000} />`}</span>
    <span class="row-text">${row.version === 0 ? "The base model, before it learnt anything" : origin(row)}</span>
  </a>`;
}

function origin(row) {
  return [taughtBy(row), !row.episodes && learntBy(row.objective), `from ${versionName(row.parent)}`].filter(Boolean).join(" · ");
}

function Chosen({ number, list, changed }) {
  const loaded = useLoaded(`/burnish/adapters/${number}`, changed);
  return html`<section aria-label=${versionName(number)}><${Loaded} loaded=${loaded}>${(version) => html`<${Details} version=${version} list=${list}>
    <${Actions} version=${version} list=${list} />
  <//>`}<//></section>`;
}

function Actions({ version: { version, state, verdict, reason }, list }) {
  const [asked, setAsked] = useState(false);
  const usable = useMay("steer") && version !== list.live && state !== "pruned";
  const before = version === 0 || state === "retired";
  const rejected = state === "rejected" ? (verdict?.headline ?? reason) : null;
  const ask = () => setAsked(true);
  useKeys("This version", usable ? [{ key: "u", does: `Use ${versionName(version)}`, run: ask }] : []);
  if (!usable) return null;
  return html`<${Button} tone=${rejected === null ? "main" : ""} keys="u" onClick=${ask}>${before ? "Go back to it" : rejected === null ? "Use it" : "Use it all the same"}<//>
    ${asked && (before ? html`<${GoBack} to=${version} onClose=${() => setAsked(false)} />` : html`<${Promote} number=${version} rejected=${rejected} onClose=${() => setAsked(false)} />`)}`;
}
