// Which two answers to compare next. The better one stays and meets the next, so n answers need n − 1 comparisons. Pure.

// Answers that can be compared. Equal texts can't: nothing is better about one of them.
function contenders({ answers }) {
  const texts = new Set();
  return answers.filter(({ state, text, id }) => {
    const fresh = state === "done" && id && text.trim() && !texts.has(text.trim());
    if (fresh) texts.add(text.trim());
    return fresh;
  });
}

// Returns {best, next}: the best answer so far, and the one to compare it with, or null if all are compared.
export function standing(turn) {
  const [first, ...others] = contenders(turn);
  let best = first ?? null;
  for (const other of others) {
    const said = turn.judged.find(({ a, b }) => (a === best.key && b === other.key) || (a === other.key && b === best.key));
    if (!said) return { best, next: other };
    if (said.winner === other.key) best = other;
  }
  return { best, next: null };
}

// Returns the two answers to show as left and right, or null if there is nothing to compare (now).
export function pairOf(turn) {
  if (turn.skipped || turn.answers.some(({ state }) => state === "writing")) return null;
  const { best, next } = standing(turn);
  return next && { left: best, right: next };
}

// Whether the models' names are hidden: a name must not decide which answer is better.
export function isBlind(turn) {
  const models = new Set(turn.answers.map(({ model }) => model));
  if (turn.skipped || models.size < 2) return false;
  return turn.answers.some(({ state }) => state === "writing") || pairOf(turn) !== null;
}

// The answer that the conversation goes on from.
export function chosenOf(turn) {
  const usable = turn.answers.filter(({ text }) => text.trim());
  return usable.find(({ key }) => key === turn.chosen) ?? usable[0] ?? turn.answers[0];
}
