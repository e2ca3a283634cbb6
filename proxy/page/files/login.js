// Signing in and out, and what the caller may do.
import { get, send } from "./api.js";
import { connect, loadStatus } from "./events.js";
import { keep, onOtherTab } from "./session.js";
import { state, update } from "./store.js";

// Asks who the caller is, and begins to follow what happens if they may.
export async function begin() {
  try {
    const whoami = await get("/burnish/whoami");
    update({ whoami, locked: !whoami.may.includes("watch") });
  } catch {
    // An ended sign-in shows the login. If burnish doesn't answer, the events try again.
  }
  if (state.locked) return;
  loadStatus();
  connect();
}

// Throws ApiError if the key is wrong.
export async function signIn(key) {
  const { proof, ...whoami } = await send("POST", "/burnish/login", { key }, { headers: {}, credentials: "same-origin" });
  keep(proof);
  update({ whoami, signedOut: null });
  renew();
}

export async function signOut() {
  await send("POST", "/burnish/logout", {}).catch(() => {}); // without the proof the cookie is worth nothing
  keep(null);
  renew();
}

// Goes on without the sign-in that has ended.
export function renew() {
  // What another identity was shown doesn't stay.
  state.answers.clear();
  state.underway.clear();
  update((old) => ({ status: null, runs: new Map(), listsStale: old.listsStale + 1, versionsChanged: old.versionsChanged + 1 }));
  return begin();
}

onOtherTab(renew);
