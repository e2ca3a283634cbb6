// Small labels: a version, a rating, a state.
import { html } from "../lib.js";

export function Badge({ tone = "", title, children }) {
  return html`<span class=${`badge ${tone}`} title=${title}>${children}</span>`;
}

// `version`: 0 is the base model, null a model that burnish doesn't train.
export function VersionBadge({ version, model, live }) {
  if (version == null) return html`<${Badge} title="burnish doesn't train this model">${model ?? "other model"}<//>`;
  const name = version === 0 ? "base" : `v${version}`;
  const title = version === 0 ? "The base model, without what was learnt" : `Version ${version} of your model`;
  return html`<${Badge} tone=${`version ${version === live ? "live" : ""}`} title=${title}>${name}<//>`;
}

// `rating` from -1 to 1, or null; `word` as burnish says it ("good", "4 of 5").
export function RatingBadge({ rating, word }) {
  if (rating == null) return null;
  const tone = rating > 0 ? "good" : rating < 0 ? "bad" : "";
  return html`<${Badge} tone=${tone}>${word ?? rating}<//>`;
}

// `reward` from 0 to 1 by the reward model; null or undefined: none was given.
export function RewardBadge({ reward }) {
  if (reward == null) return null;
  return html`<${Badge} title="The reward model's guess, from 0 (bad) to 1 (good)">reward ${reward.toFixed(2)}<//>`;
}
