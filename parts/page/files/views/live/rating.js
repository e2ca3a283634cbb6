// What is said of an answer: shown at once, sent to burnish, and never lost in silence.
import { send } from "../../api.js";
import { failed, toast } from "../../parts/toast.js";
import { answers } from "./answers.js";

export const POINTS = ["Terrible", "Poor", "Okay", "Good", "Excellent"];

const given = []; // what this page said, latest last: {id, quote, stored: a promise of burnish's record}
let unsaved = 0;
let closeNote = () => {}; // of the rating before: only the last one is worth reading
let count = 0;

// `said`: fields of a feedback request. `row`: {id, prompt, rating, rated} of the answer. Returns whether it was stored.
export async function say(row, said, again) {
  // With a key of its own, a second try stores nothing twice.
  const key = again ?? `page-${Date.now()}-${++count}-${Math.random().toString(36).slice(2)}`;
  const shown = said.choice ? null : shownAs(said);
  const quote = quoted(row);
  // A rating is about the whole task, as /rl is: an agent's steps as well. Words are about this answer.
  const scope = said.choice || !shown ? "completion" : "turn";
  const marks = { ...shown, ...(said.comment && !said.choice ? { commented: true } : {}) };
  const before = Object.fromEntries(Object.keys(marks).map((name) => [name, row[name]]));
  answers.mark(row.id, marks);
  const entry = { id: row.id, quote, stored: send("POST", "/v1/feedback", { completion_id: row.id, scope, ...said, idempotency_key: key }) };
  given.push(entry);
  unsaved += 1;
  try {
    const record = await entry.stored;
    tell(`${inWords(said)}: ${quote}.${taught(record)}`);
    return true;
  } catch (error) {
    given.splice(given.indexOf(entry), 1);
    answers.mark(row.id, before);
    failed(`Not saved – ${inWords(said)}: ${quote}`, error, mends(error) && (() => say(row, said, key)));
    return false;
  } finally {
    unsaved -= 1;
  }
}

// Takes back what was said last on this page. Returns the ID of its answer; null if there is none.
export async function undo() {
  const entry = given.at(-1);
  if (!entry) {
    tell("Nothing to take back: you said nothing since this page was opened. “Take back” beside an answer undoes earlier ratings.");
    return null;
  }
  const record = await entry.stored.catch(() => null); // its own message says that it wasn't saved
  if (record) await takeBack(record, entry.quote);
  return entry.id;
}

// Takes a record back. Returns whether it is.
export async function takeBack(record, quote) {
  try {
    const { rated } = await send("DELETE", `/v1/feedback/${encodeURIComponent(record.id)}`);
    forget(record.id);
    tell(`Taken back: ${quote}. ${rated ? `It counts as ${rated} now.` : "It isn't rated now."}`);
    return true;
  } catch (error) {
    failed(`Not taken back: ${quote}`, error, mends(error) && (() => takeBack(record, quote)));
    return false;
  }
}

async function forget(id) {
  for (const entry of [...given]) {
    const record = await entry.stored.catch(() => null);
    if (record?.id === id) given.splice(given.indexOf(entry), 1);
  }
}

export const quoted = ({ prompt }) => (prompt ? `“${prompt.slice(0, 60)}${prompt.length > 60 ? "…" : ""}”` : "an answer without a question");

function tell(text) {
  closeNote();
  closeNote = toast(text);
}

function taught({ usable, reason }) {
  if (!usable) return ` Nothing will be learnt from it: ${reason}.`;
  return reason ? ` Only partly learnt from: ${reason}.` : "";
}

// A refusal stays one, however often it is tried.
function mends({ status }) {
  return status === 0 || status === 401 || status === 429 || status >= 500;
}

function shownAs({ rating, scale }) {
  if (scale === "likert") return { rating: (rating - 3) / 2, rated: `${rating} of 5 (${POINTS[rating - 1]})` };
  return rating === undefined ? null : { rating: rating === "good" ? 1 : -1, rated: rating };
}

function inWords({ rating, scale, comment, correction }) {
  const rated = scale === "likert" ? `rated ${rating} of 5 (${POINTS[rating - 1]})` : rating && `rated ${rating}`;
  const words = [rated, comment && "comment", correction && "your version"].filter(Boolean).join(", with ");
  return words[0].toUpperCase() + words.slice(1);
}

addEventListener("beforeunload", (event) => {
  if (unsaved) event.preventDefault(); // the browser asks whether to leave
});
