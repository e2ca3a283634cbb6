// Answers that taught a version nothing, and why.
import { html, useState } from "../lib.js";
import { address } from "../router.js";
import { Loaded, useLoaded } from "./load.js";
import { line } from "./text.js";
import { count } from "./words.js";

const SHOWN = 20; // each costs a request

// `unlearnt`: ID of an answer → why.
export function Unlearnt({ unlearnt }) {
  const [open, setOpen] = useState(false);
  const found = Object.entries(unlearnt);
  if (!found.length) return null;
  const what = `${count(found.length, "answer")} taught it nothing`;
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${what}</summary>
    ${open && html`<ul class="rows unlearnt">${found.slice(0, SHOWN).map(([id, why]) => html`<li key=${id}><${Answer} id=${id} why=${why} /></li>`)}</ul>`}
    ${open && found.length > SHOWN && html`<p class="muted small">And ${found.length - SHOWN} more.</p>`}
  </details>`;
}

// Of several answers to one prompt, the name is that of the request and the number of the answer.
function Answer({ id, why }) {
  const request = id.split("/")[0];
  const loaded = useLoaded(`/burnish/completions/${encodeURIComponent(request)}`);
  return html`<a href=${address("live", request)}>
    <${Loaded} loaded=${loaded}>${(row) => html`<strong>${line(row.prompt, 160) || "(no text)"}</strong>`}<//>
    <span class="muted small">${why}</span>
  </a>`;
}
