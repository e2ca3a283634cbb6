// What the person says of answers: shown at once, sent to burnish, and never lost in silence.
import { send } from "../../api.js";
import { failed, toast } from "../../parts/toast.js";
import { pairOf, standing } from "./pairs.js";
import { changeAnswer, changeTurn, turnOf } from "./talk.js";

export const POINTS = ["Terrible", "Poor", "Okay", "Good", "Excellent"];

let latest = []; // {what, back}: what was said, latest last, and how to take it back. `what` is a record's ID
const saving = new Map(); // key of an answer → its rating that is being stored

// `rating`: "good", "bad" or 1 to 5. The same once more takes it back.
export async function rate(turn, { key }, rating) {
  await saving.get(key); // a second press takes back what the first one stores
  const answer = turnOf(turn.key)?.answers.find((each) => each.key === key);
  if (!answer) return;
  const word = typeof rating === "number" ? `${rating} of 5` : rating;
  if (answer.rated === word && answer.feedback) return takeRatingBack(turn, answer);
  const scale = typeof rating === "number" ? { scale: "likert" } : {};
  const before = { rated: answer.rated, feedback: answer.feedback };
  const put = (patch) => changeAnswer(turn.key, answer.key, patch);
  put({ rated: word, feedback: null });
  const storing = stored({ completion_id: answer.id, rating, ...scale }, "The rating wasn't saved", () => rate(turn, answer, rating));
  saving.set(key, storing);
  const record = await storing;
  if (saving.get(key) === storing) saving.delete(key);
  put(record ? { feedback: record.id } : before);
  if (record) latest.push({ what: record.id, back: () => takeRatingBack(turn, { ...answer, rated: word, feedback: record.id }) });
}

async function takeRatingBack(turn, { key, rated, feedback }) {
  const gone = await takenBack(feedback);
  if (!gone) return;
  changeAnswer(turn.key, key, { rated: gone.rated, feedback: null });
  toast(`Taken back: ${rated}.`);
}

// Returns whether the comment was saved.
export async function comment(turn, answer, text) {
  const record = await stored({ completion_id: answer.id, comment: text }, "The comment wasn't saved");
  if (!record) return false;
  changeAnswer(turn.key, answer.key, { comments: [...(answer.comments ?? []), text] });
  const back = async () => {
    if (!(await takenBack(record.id))) return;
    changeAnswer(turn.key, answer.key, (now) => ({ comments: now.comments.filter((each) => each !== text) }));
    toast("Taken back: the comment.");
  };
  latest.push({ what: record.id, back });
  return true;
}

// `winner`: one of the two, or null if neither is better. That says nothing to learn from, so nothing is stored.
export async function judge(turn, { left, right }, winner) {
  const now = pairOf(turnOf(turn.key));
  if (now?.left.key !== left.key || now.right.key !== right.key) return; // a key was pressed twice
  let said = { a: left.key, b: right.key, winner: winner?.key ?? null, feedback: null };
  const put = (judged) =>
    changeTurn(turn.key, (known) => {
      const next = { ...known, judged };
      return { judged, chosen: standing(next).best?.key ?? known.chosen };
    });
  const without = () => (turnOf(turn.key)?.judged ?? []).filter(({ a, b }) => a !== said.a || b !== said.b);
  const before = turn.chosen;
  put([...without(), said]);
  if (winner) {
    const loser = winner === left ? right : left;
    const body = { completion_id: winner.id, preferred_over: loser.id };
    const record = await stored(body, "Your choice wasn't saved", () => judge(turn, { left, right }, winner));
    if (!record) return changeTurn(turn.key, { judged: without(), chosen: before });
    said = { ...said, feedback: record.id };
    put([...without(), said]);
  }
  latest.push({ what: said.feedback ?? said, back: () => takeChoiceBack(turn, said) });
}

export async function takeChoiceBack(turn, said) {
  if (said.feedback && !(await takenBack(said.feedback))) return;
  forget(said.feedback ?? said);
  changeTurn(turn.key, ({ judged }) => ({ judged: judged.filter((each) => each.a !== said.a || each.b !== said.b), skipped: false }));
  toast("Taken back: which answer is better.");
}

export async function undo() {
  const last = latest.at(-1);
  if (last) await last.back();
  else toast("Nothing to take back: you said nothing of an answer since this page was opened.");
}

// Returns burnish's record; null if there is none, which is shown.
async function stored(said, what, again) {
  try {
    const record = await send("POST", "/v1/feedback", said);
    if (!record.usable) toast(`Saved, but nothing will be learnt from it: ${record.reason}.`);
    return record;
  } catch (error) {
    failed(what, error, again);
    return null;
  }
}

function forget(what) {
  latest = latest.filter((each) => each.what !== what);
}

async function takenBack(id) {
  try {
    const answer = await send("DELETE", `/v1/feedback/${encodeURIComponent(id)}`);
    forget(id);
    return answer;
  } catch (error) {
    failed("It wasn't taken back", error);
    return null;
  }
}
