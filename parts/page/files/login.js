// Signing in and out, and what the caller may do.
import { get, send } from "./api.js";
import { connect, disconnect, loadStatus } from "./events.js";
import { keep, onOtherTab } from "./session.js";
import { state, update } from "./store.js";

// Asks who the caller is, and begins to follow what happens if they may.
export async function begin() {
  try {
    const whoami = await ask();
    update({ whoami, locked: state.signedOut || !whoami.may.includes("watch") });
  } catch {
    // burnish doesn't answer: the events try again.
  }
  if (state.locked) return;
  loadStatus();
  connect();
}

async function ask() {
  try {
    return await get("/burnish/whoami");
  } catch (error) {
    if (error.code !== "signed_out") throw error;
    return get("/burnish/whoami"); // as nobody, from now on
  }
}

// Throws ApiError if the key is wrong.
export async function signIn(key) {
  const { proof } = await send("POST", "/burnish/login", { key }, { headers: {}, credentials: "same-origin" });
  keep(proof);
  renew();
}

export async function signOut() {
  await send("POST", "/burnish/logout", {}).catch(() => {}); // without the proof the cookie is worth nothing
  keep(null);
  renew();
}

// Goes on as whoever the caller is now.
export function renew() {
  disconnect();
  // What another identity was shown doesn't stay.
  state.answers.clear();
  state.underway.clear();
  update((old) => ({ signedOut: false, status: null, runs: new Map(), listsStale: old.listsStale + 1, versionsChanged: old.versionsChanged + 1 }));
  return begin();
}

onOtherTab(renew);
