// Beside the navigation, in every view: how far the model is from learning something new.
import { html } from "../lib.js";
import { address } from "../router.js";
import { useStore } from "../store.js";
import { duration } from "./time.js";
import { commentsOf, stepOf } from "./words.js";

export function LearningState() {
  const learner = useStore(({ status }) => status?.learner);
  const said = learner && described(learner);
  if (!said) return null;
  return html`<a class="learning-state" href=${address("learning")}>
    <span>${said.text}</span>
    ${said.share != null && html`<meter class="meter" min="0" max="1" value=${said.share} aria-label=${said.text} />`}
  </a>`;
}

// Returns {text, share?}, or null if there is nothing to say.
function described({ state, run, waiting, ready, needed }) {
  if (run) return training(run.progress);
  if (waiting) return { text: `Version ${waiting.version} waits for you to decide` };
  if (state === "paused") return { text: "Learning is paused" };
  if (!ready) return null;
  const share = Math.min(1, Math.max(ready.new_comments / needed.comments, ratings(ready, needed)));
  if (share === 1) return { text: "Ready to learn", share };
  // Comments teach the most, so they are what is asked for.
  return { text: commentsOf({ ready, needed }), share };
}

// Both kinds are needed, so the rarer one decides.
function ratings(ready, needed) {
  return Math.min(ready.new / needed.new, ready.good / needed.good, ready.bad / needed.bad);
}

function training(progress) {
  if (!progress) return { text: "Learning now" };
  const { step, steps, done, total, run_eta_s: left } = progress;
  const text = `Learning, ${stepOf(progress)}${left == null ? "" : `, about ${duration(left)} left`}`;
  return { text, share: (step - 1 + (total ? done / total : 0)) / steps };
}
