// Words for what burnish calls by short names.

const OBJECTIVES = {
  mis_po: "good and bad answers",
  kto: "good and bad answers",
  dpo: "pairs in which one answer was preferred",
  sft: "good answers",
  distil: "answers that follow comments",
  critique: "comments",
  hybrid: "ratings and comments",
  imported: "training elsewhere",
  ppo: "rewards",
  rloo: "rewards",
  grpo: "rewards",
  gspo: "rewards",
};

export const learntBy = (objective) => OBJECTIVES[objective] ?? objective;

// What taught a version: an agent's attempts with their mean reward, else ratings.
export function taughtBy({ ratings, episodes, reward }) {
  return episodes ? `${count(episodes, "rollout")}, mean reward ${reward.toFixed(2)}` : count(ratings, "rating");
}

export const commentsOf = ({ ready, needed }) => `${ready.new_comments} of ${needed.comments} comments`;

export const stepOf = ({ step, steps }) => `step ${step} of ${steps}`;

export const versionName = (number) => (number === 0 ? "the base model" : `v${number}`);

// The state of a version, and the tone of its badge.
export function stateOf({ state, version }, { live, waiting }) {
  if (version === live) return ["answers now", "accent"];
  if (version === waiting) return ["waits for you", "warn"];
  return STATES[state] ?? [state, ""];
}

const STATES = {
  live: ["answers now", "accent"],
  candidate: ["not in use", ""],
  rejected: ["failed the checks", "bad"],
  retired: ["was in use", ""],
  pruned: ["was in use, deleted", ""],
  available: ["available", ""],
};

export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
