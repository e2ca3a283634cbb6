// Asks for a training at once: first what it would learn from, then whether to start.

import { send } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Confirm } from "../../parts/confirm.js";
import { Dialog } from "../../parts/dialog.js";
import { Note } from "../../parts/note.js";
import { toast } from "../../parts/toast.js";
import { count, versionName } from "../../parts/words.js";

// `plan`: the answer to a dry run. `force`: it goes on although all ratings are good, or all bad.
export function Train({ plan, force, onClose }) {
  if (!plan.would_train) {
    return html`<${Dialog} title="Training can't start" onClose=${onClose}><p>${plan.why}</p><//>`;
  }
  const start = async () => {
    const { warnings } = await send("POST", "/burnish/train", { force });
    toast(warnings.length ? `Training has started. ${warnings.join(". ")}` : "Training has started.", { stays: warnings.length > 0 });
  };
  return html`<${Confirm} title="Train now?" does="Train" act=${start} onClose=${onClose}>
    ${force && html`<${Note} tone="warn" title="All ratings are of one kind."><p>The model can then learn only what to avoid or to repeat. Better rate some answers the other way.</p><//>`}
    <p>It learns from ${plan.comments > 0 ? `${count(plan.comments, "comment")}, ` : ""}${count(plan.trains_on.good, "good rating")} and ${count(plan.trains_on.bad, "bad one")}, and starts from ${versionName(plan.parent)}.</p>
    ${plan.held_out > 0 && html`<p>${count(plan.held_out, "rating")} ${plan.held_out === 1 ? "is" : "are"} kept aside to test the new version.</p>`}
    <p class="muted">Training takes minutes and slows this machine. Answers go on meanwhile. The new version is used only if the checks show that it is better.</p>
  <//>`;
}

// Returns what to give to Train. One-sided ratings need `force`.
export async function planned() {
  const plan = await send("POST", "/burnish/train", { dry_run: true });
  if (plan.would_train) return { plan, force: false };
  const forced = await send("POST", "/burnish/train", { dry_run: true, force: true });
  return forced.would_train ? { plan: forced, force: true } : { plan, force: false };
}

export function useTraining() {
  const [asked, setAsked] = useState(null);
  return { asked, ask: async () => setAsked(await planned()), close: () => setAsked(null) };
}
