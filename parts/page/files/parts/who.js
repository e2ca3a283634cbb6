// Who the page acts for, beside the navigation.
import { html } from "../lib.js";
import { signOut } from "../login.js";
import { address } from "../router.js";
import { useStore } from "../store.js";
import { Button } from "./button.js";

const KEYS = { admin_key: "the admin key", api_key: "the API key" };

export function Who() {
  const whoami = useStore((state) => state.whoami);
  const locked = useStore((state) => state.locked);
  if (!whoami?.keys.length || locked) return null;
  if (whoami.signed_in_until) {
    return html`<p class="who">Signed in with ${KEYS[whoami.key]}</p><${Button} tone="quiet" class="sign-out" onClick=${signOut}>Sign out<//>`;
  }
  return html`<a class="who" href=${address("login")}>Sign in</a>`;
}
