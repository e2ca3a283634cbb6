// Which version answered how many requests, day by day.
import { html } from "../../lib.js";
import { VersionBadge } from "../../parts/badge.js";
import { Loaded, useLoaded } from "../../parts/load.js";
import { count, versionName } from "../../parts/words.js";

const DAYS = 30;
const SHADES = 5; // of the accent colour; older versions repeat them
const date = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" });
const shown = (day) => date.format(new Date(`${day}T00:00:00Z`)); // burnish names the days of its own clock

export function Traffic({ live, changed }) {
  const loaded = useLoaded(`/burnish/adapters/traffic?limit=${DAYS}`, changed);
  return html`<section class="stack" aria-labelledby="traffic">
    <h2 id="traffic">Who answered, day by day</h2>
    <${Loaded} loaded=${loaded}>${({ days }) => html`<${Bars} days=${days} live=${live} />`}<//>
  </section>`;
}

function Bars({ days, live }) {
  const sums = days.map(({ answers }) => sum(answers));
  const most = Math.max(...sums);
  if (!most) return html`<p class="muted">No request was answered in the last ${DAYS} days.</p>`;
  const versions = [...new Set(days.flatMap(({ answers }) => Object.keys(answers).map(Number)))].sort((one, two) => one - two);
  return html`<div class="traffic">
    <div class="bars" aria-hidden="true">
      ${days.map(
        ({ date: day, answers }) => html`<div key=${day} class="bar" title=${told(day, answers)}>
        ${versions.map((version) => answers[version] && html`<i key=${version} class=${shade(version)} style=${{ height: `${(100 * answers[version]) / most}%` }} />`)}
      </div>`,
      )}
    </div>
    <div class="spread muted small" aria-hidden="true"><span>${shown(days[0].date)}</span><span>at most ${count(most, "answer")} a day</span><span>today</span></div>
    <ul class="line-up legend">${versions.map((version) => html`<li key=${version} class="line-up"><i class=${`swatch ${shade(version)}`} /><${VersionBadge} version=${version} live=${live} /></li>`)}</ul>
    <ul class="for-readers">${days.filter((_, place) => sums[place]).map(({ date: day, answers }) => html`<li key=${day}>${told(day, answers)}</li>`)}</ul>
  </div>`;
}

const sum = (answers) => Object.values(answers).reduce((total, number) => total + number, 0);
const shade = (version) => (version === 0 ? "base" : `shade-${version % SHADES}`);

function told(day, answers) {
  const all = sum(answers);
  const parts = Object.entries(answers).map(([version, number]) => `${versionName(Number(version))} ${number} (${Math.round((100 * number) / all)} %)`);
  return `${shown(day)}: ${parts.join(", ") || "no answers"}`;
}
