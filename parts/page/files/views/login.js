// Sign in: a key opens what the page may show and do.
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { renew, signIn } from "../login.js";
import { Button } from "../parts/button.js";
import { Note } from "../parts/note.js";
import { go, read } from "../router.js";
import { useStore } from "../store.js";

export function View() {
  const whoami = useStore((state) => state.whoami);
  const ended = useStore((state) => state.signedOut);
  if (whoami && !whoami.keys.length) {
    return html`<div class="empty"><h1>Nobody needs to sign in</h1><p>This burnish has no keys, so everybody on this machine may use it.</p></div>`;
  }
  return html`<div class="empty">
    <h1>Sign in to burnish</h1>
    ${
      ended &&
      html`<${Note} tone="warn" title="You are no longer signed in.">
      <p>Signing in lasts 30 days, and ends when the key changes.</p>
    <//>`
    }
    ${!isSecureContext && html`<${Unsafe} />`}
    <${Form} />
    <${Choices} whoami=${whoami} ended=${ended} />
  </div>`;
}

function Unsafe() {
  const { hostname, port } = location;
  return html`<${Note} tone="bad" title="This connection isn't encrypted.">
    <p>Everybody on the way to ${hostname} can read your key and all answers. Open the page over https, or forward its port:</p>
    <code>ssh -L 8787:127.0.0.1:${port || 80} ${hostname}</code>
  <//>`;
}

function Form() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn(field.current.value);
      if (read().view === "login") go("live", { replace: true });
    } catch (fault) {
      setBusy(false);
      setError(fault);
      field.current.select();
    }
  }
  return html`<form class="stack" onSubmit=${submit}>
    <input type="text" name="username" autocomplete="username" value="burnish" hidden />
    <label class="field"><span>Key</span>
      <input ref=${field} class="input" type="password" name="key" autocomplete="current-password" required aria-describedby=${error ? "login-error" : undefined} />
    </label>
    ${error && html`<div id="login-error"><${Failed} error=${error} /></div>`}
    <div><${Button} tone="main" type="submit" busy=${busy}>Sign in<//></div>
  </form>`;
}

function Failed({ error }) {
  if (error.code === "wrong_key") return html`<${Note} tone="bad" title="This burnish has another key." />`;
  return html`<${Note} tone="bad" title="You couldn't be signed in."><p>${error.message}</p><//>`;
}

function Choices({ whoami, ended }) {
  const both = whoami?.keys.length > 1;
  const withoutIt = ended || (whoami && !whoami.needs_key);
  function goOn() {
    if (read().view === "login") go("live", { replace: true });
    renew();
  }
  return html`<div class="stack">
    ${both && html`<p class="muted">With the API key you can chat and rate. The admin key also shows what others wrote, and trains, promotes and erases.</p>`}
    <details><summary>Where do I find the key?</summary>
      <p>Whoever runs burnish has set it: as <code>api_key</code> or <code>admin_key</code> in
      ${" "}<code>~/.config/burnish/config.toml</code>, or as <code>BURNISH_API_KEY</code> or <code>BURNISH_ADMIN_KEY</code> in its environment.</p>
    </details>
    ${withoutIt && html`<div><${Button} onClick=${goOn}>Go on without a key<//></div>`}
  </div>`;
}
