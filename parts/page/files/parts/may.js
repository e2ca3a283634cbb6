// What the caller may do, and what to do if it isn't enough.
import { html } from "../lib.js";
import { address } from "../router.js";
import { useStore } from "../store.js";
import { Note } from "./note.js";

// `action` is one of those in GET /burnish/whoami: ask, rate, watch, read, steer, erase … Without one, anybody may.
export function useMay(action) {
  return useStore(({ whoami }) => !action || (whoami?.may.includes(action) ?? true));
}

// Stands where something isn't shown. `what` begins a sentence.
export function Locked({ what = "This view" }) {
  const keys = useStore(({ whoami }) => whoami?.keys);
  if (keys?.includes("admin_key")) {
    return html`<${Note} title=${`${what} needs the admin key.`}>
      <p>It shows what everybody wrote, or changes what the model is. <a href=${address("login")}>Sign in with the admin key</a></p>
    <//>`;
  }
  return html`<${Note} title=${`${what} needs an admin key, and this burnish has none.`}>
    <p>Set <code>admin_key</code> in burnish's configuration, or <code>BURNISH_ADMIN_KEY</code> in its environment. Then start burnish again.</p>
  <//>`;
}
