// What a view shows of one route: loading, the answer, or why there is none.

import { get } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { Button } from "./button.js";
import { Note } from "./note.js";

// Asks again when the path or `when` changes; meanwhile the old answer stays. `path` null: nothing to ask yet.
// Returns {found, error, again}.
export function useLoaded(path, when) {
  const [state, setState] = useState(/** @type {{path?: string, found?: any, error?: any}} */ ({}));
  const [count, setCount] = useState(0);
  useEffect(() => {
    let current = true;
    if (path === null) return;
    get(path).then(
      (found) => current && setState({ path, found }),
      (error) => current && setState((old) => ({ path, error, found: old.path === path ? old.found : undefined })),
    );
    return () => (current = false);
  }, [path, when, count]);
  const { found, error } = state.path === path ? state : {};
  return { found, error, again: () => setCount((old) => old + 1) };
}

// `loaded`: what useLoaded returns. `children`: a function of the answer.
export function Loaded({ loaded: { found, error, again }, children }) {
  if (found) return children(found);
  if (!error) return html`<p class="muted">Loading …</p>`;
  return html`<${Note} tone="bad" title="This couldn't be loaded."><p>${error.message}</p><${Button} onClick=${again}>Try again<//><//>`;
}
