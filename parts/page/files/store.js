// One store for the whole page. Changes within one frame reach the views together, however many there are.
import { useEffect, useReducer, useRef } from "./lib.js";

/** @type {import("./types.d.ts").State} */
export const state = {
  connection: "connecting",
  locked: false,
  signedOut: false,
  whoami: null,
  status: null,
  clockAhead: 0,
  answers: new Map(),
  underway: new Map(),
  answersChanged: 0,
  liveChanged: 0,
  listsStale: 0,
  runs: new Map(),
  versionsChanged: 0,
  toasts: [],
};

/** @type {Set<() => void>} */
const listeners = new Set();
let waiting = false;

/**
 * Changes the state, and has the views drawn that it concerns.
 * @param {Partial<import("./types.d.ts").State> | ((now: import("./types.d.ts").State) => Partial<import("./types.d.ts").State>)} patch
 */
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

/**
 * Draws again when what `select` returns is another value.
 * @template T
 * @param {(now: import("./types.d.ts").State) => T} select
 * @returns {T}
 */
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
