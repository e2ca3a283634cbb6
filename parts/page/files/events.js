// The one event stream of the page: GET /burnish/events → store.
import { get } from "./api.js";
import { withProof } from "./session.js";
import { state, update } from "./store.js";

const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 8000;
const KEPT_ANSWERS = 500; // for lists, which take them in with the next frame
const POLL_MS = 10_000;

/** @type {EventSource | null} */
let source = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let pause = FIRST_PAUSE_MS;

export function disconnect() {
  source?.close();
  clearTimeout(timer);
  source = null;
}

export function connect() {
  disconnect();
  if (state.whoami && !state.whoami.may.includes("read")) {
    poll();
    return;
  }
  const stream = new EventSource(withProof("/burnish/events"));
  source = stream;
  stream.onopen = () => {
    pause = FIRST_PAUSE_MS;
    update({ connection: "open" });
  };
  stream.onerror = () => {
    if (state.connection !== "lost") update({ connection: "lost" });
    // The browser tries again by itself, with Last-Event-ID, unless an answer like 401 or 503 ended it.
    if (stream === source && stream.readyState === EventSource.CLOSED) {
      timer = setTimeout(reconnect, pause);
      pause = Math.min(pause * 2, LAST_PAUSE_MS);
    }
  };
  for (const [name, take] of Object.entries(TAKES)) {
    stream.addEventListener(name, (event) => take(JSON.parse(event.data)));
  }
}

// Who may not read gets no events, only counts.
async function poll() {
  const turn = setTimeout(poll, POLL_MS);
  timer = turn;
  const reached = await loadStatus();
  if (turn === timer) update({ connection: reached ? "open" : "lost" });
}

async function reconnect() {
  // The status tells whether burnish wants a key; a stream can't.
  await loadStatus();
  if (!state.locked) connect();
}

export async function loadStatus() {
  try {
    update({ status: await get("/burnish/status") });
    return true;
  } catch {
    return false; // the header says that the connection is lost
  }
}

const changed = () => update((now) => ({ answersChanged: now.answersChanged + 1 }));

/** @type {Record<string, (content: any) => void>} */
const TAKES = {
  hello({ now, resumed }) {
    update({ clockAhead: now * 1000 - Date.now() });
    // Nothing tells what happened meanwhile.
    if (!resumed) {
      state.underway.clear();
      update((old) => ({ listsStale: old.listsStale + 1, versionsChanged: old.versionsChanged + 1 }));
      loadStatus();
    }
  },
  began(answer) {
    state.underway.set(answer.id, { ...answer, text: "", tools: [] });
    changed();
  },
  text({ answers }) {
    for (const [id, { add, tools, thinks }] of Object.entries(answers)) {
      const known = state.underway.get(id);
      if (known) state.underway.set(id, { ...known, text: known.text + (add ?? ""), tools: tools ?? known.tools, thinks: thinks ?? known.thinks });
    }
    changed();
  },
  answer(row) {
    state.underway.delete(row.id);
    state.answers.delete(row.id); // the latest one is the last
    state.answers.set(row.id, row);
    if (state.answers.size > KEPT_ANSWERS) state.answers.delete(state.answers.keys().next().value ?? "");
    changed();
  },
  erased({ ids, user }) {
    for (const answers of [state.answers, state.underway]) {
      for (const [id, row] of answers) {
        if (ids?.includes(id) || (user && row.caller === user)) answers.delete(id);
      }
    }
    changed();
    update((old) => ({ listsStale: old.listsStale + 1 }));
  },
  status(status) {
    update({ status });
  },
  run(run) {
    update((old) => ({ runs: new Map(old.runs).set(run.id, run) }));
  },
  versions() {
    update((old) => ({ versionsChanged: old.versionsChanged + 1 }));
  },
};
