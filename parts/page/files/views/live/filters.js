// Which answers are listed: the choices, what burnish is asked for, and whether an answer that arrives fits.
import { html, useEffect, useRef, useState } from "../../lib.js";
import { Button, Kbd } from "../../parts/button.js";
import { Icon } from "../../parts/icon.js";

export const NONE = { q: "", rating: "", version: "", agent: "", failed: "" };

const RATINGS = [
  ["", "Rated or not"],
  ["unrated", "Not rated yet"],
  ["good", "Rated good"],
  ["bad", "Rated bad"],
  ["commented", "With a comment"],
];
const TYPING_MS = 200; // a pause in typing, after which the search begins

export const filtered = (filters) => Object.values(filters).some(Boolean);

// `row` is slim; `said` is everything that was asked and answered.
export function fits(filters, row, said) {
  const { q, rating, version, agent, failed } = filters;
  const found = { unrated: row.rating == null, good: row.rating > 0, bad: row.rating < 0, commented: row.commented };
  return (
    (!rating || found[rating]) &&
    (!version || String(row.version) === version) &&
    (!agent || row.agent === agent) &&
    (!failed || row.failed) &&
    (!q || said().toLowerCase().includes(q.toLowerCase()))
  );
}

// `onChange` gets the filters that change.
export function Filters({ filters, onChange, agents, versions, search }) {
  const set = (name) => (event) => onChange({ [name]: event.currentTarget.value });
  return html`<div class="filters" role="search" aria-label="Filters">
    <${Search} value=${filters.q} onChange=${(q) => onChange({ q })} field=${search} />
    <${Choice} name="Rating" value=${filters.rating} options=${RATINGS} onChange=${set("rating")} />
    <${Choice}
      name="Version"
      value=${filters.version}
      options=${[["", "Any version"], ...versions.map((each) => [String(each), each === 0 ? "Base model" : `Version ${each}`])]}
      onChange=${set("version")}
    />
    <${Choice} name="Agent" value=${filters.agent} options=${[["", "Any agent"], ...agents.map((each) => [each, each])]} onChange=${set("agent")} />
    <${Button} pressed=${Boolean(filters.failed)} onClick=${() => onChange({ failed: filters.failed ? "" : "true" })}>Failed<//>
    ${filtered(filters) && html`<${Button} tone="quiet" onClick=${() => onChange(NONE)}>Clear<//>`}
  </div>`;
}

function Choice({ name, value, options, onChange }) {
  // A filter that was chosen stays in the list, even if nothing has that value any more.
  const shown = options.some(([each]) => each === value) ? options : [...options, [value, value]];
  return html`<select class=${`input choice ${value ? "set" : ""}`} aria-label=${name} value=${value} onChange=${onChange}>
    ${shown.map(([each, label]) => html`<option key=${each} value=${each} selected=${each === value}>${label}</option>`)}
  </select>`;
}

function Search({ value, onChange, field }) {
  const [typed, setTyped] = useState(value);
  const waiting = useRef();
  useEffect(() => setTyped(value), [value]);
  useEffect(() => () => clearTimeout(waiting.current), []);
  const search = (q, after) => {
    setTyped(q);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => onChange(q.trim()), after);
  };
  return html`<label class="search">
    <span class="for-readers">Search in questions and answers</span>
    <${Icon} name="search" />
    <input
      ref=${field}
      class="input"
      type="search"
      placeholder="Search"
      value=${typed}
      onInput=${(event) => search(event.currentTarget.value, TYPING_MS)}
      onKeyDown=${(event) => event.key === "Enter" && search(typed, 0)}
    />
    <${Kbd} of="/" />
  </label>`;
}
