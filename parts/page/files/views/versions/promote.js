// Puts a version to use, or goes back to one. The dialog says what changes.

import { send } from "../../api.js";
import { loadStatus } from "../../events.js";
import { html } from "../../lib.js";
import { Confirm } from "../../parts/confirm.js";
import { Note } from "../../parts/note.js";
import { toast } from "../../parts/toast.js";
import { versionName } from "../../parts/words.js";
import { update, useStore } from "../../store.js";

const WAITS = "The engine loads it. That takes some seconds, or a minute on a busy machine.";

function changed({ live, note }) {
  toast(`Answers now come from ${versionName(live)}.${note ? ` ${note}.` : ""}`, { tone: "good", stays: Boolean(note) });
  update((old) => ({ versionsChanged: old.versionsChanged + 1 }));
  loadStatus();
}

// `rejected`: what the checks said against it; null if they didn't fail.
export function Promote({ number, rejected = null, onClose }) {
  const live = useStore(({ status }) => status?.live.version ?? 0);
  const act = async () => changed(await send("POST", `/burnish/adapters/${number}/promote`, { force: rejected !== null, reason: "promoted in the page" }));
  return html`<${Confirm} title=${`Use ${versionName(number)}?`} does=${`Use ${versionName(number)}`} act=${act} waits=${WAITS} onClose=${onClose}>
    ${rejected && html`<${Note} tone="warn" title="It failed the checks."><p>${rejected}</p><//>`}
    <p>New requests are answered by ${versionName(number)} instead of ${versionName(live)}. Answers that are being written end on ${versionName(live)}.</p>
    <p>The ratings that ${versionName(number)} learnt from count as learnt. You can go back at any time.</p>
  <//>`;
}

export function GoBack({ to, onClose }) {
  const live = useStore(({ status }) => status?.live.version ?? 0);
  const act = async () => changed(await send("POST", "/burnish/adapters/rollback", { to, reason: "rolled back in the page" }));
  return html`<${Confirm} title=${`Go back to ${versionName(to)}?`} does=${`Go back to ${versionName(to)}`} act=${act} waits=${WAITS} onClose=${onClose}>
    <p>New requests are answered by ${versionName(to)} instead of ${versionName(live)}. Answers that are being written end on ${versionName(live)}.</p>
    <p>Nothing is deleted: ${versionName(live)} stays, and you can use it again. Ratings that only ${versionName(live)} learnt from can be learnt again.</p>
  <//>`;
}
