// One store for the whole page. Changes within one frame reach the views together, however many there are.
import { useEffect, useReducer, useRef } from "./lib.js";

export const state = {
  connection: "connecting", // "open", or "lost" while the page tries again
  locked: false, // burnish wants a key, so the login is shown
  signedOut: false, // there was a sign-in, and it has ended
  whoami: null, // as GET /burnish/whoami
  status: null, // as GET /burnish/status
  clockAhead: 0, // ms by which burnish's clock is ahead of the browser's
  answers: new Map(), // id → row as in GET /burnish/completions; rows are replaced, never changed
  underway: new Map(), // id → {...began, text, tools}: answers that are still being written
  answersChanged: 0, // counts changes of the two maps above
  listsStale: 0, // counts moments after which lists must be loaded again
  runs: new Map(), // id → as GET /burnish/runs/{id}
  versionsChanged: 0, // counts changes of the list of versions
  toasts: [],
};

const listeners = new Set();
let waiting = false;

// `patch` is an object, or a function that gets the state and returns one.
export function update(patch) {
  Object.assign(state, typeof patch === "function" ? patch(state) : patch);
  if (waiting) return;
  waiting = true;
  // A hidden tab draws no frames, but must not fall behind without end.
  if (document.hidden) setTimeout(tell, 250);
  else requestAnimationFrame(tell);
}

function tell() {
  waiting = false;
  for (const listener of [...listeners]) listener();
}

// Draws again when what `select` returns is another value.
export function useStore(select) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const last = useRef();
  const chosen = useRef(select);
  chosen.current = select;
  last.current = select(state);
  useEffect(() => {
    const listener = () => {
      if (!Object.is(chosen.current(state), last.current)) redraw();
    };
    listeners.add(listener);
    listener();
    return () => listeners.delete(listener);
  }, []);
  return last.current;
}
