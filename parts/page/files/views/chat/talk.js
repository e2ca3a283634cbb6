// The conversation: kept in the tab's sessionStorage, and written on while another view is shown.
import { get } from "../../api.js";
import { toast } from "../../parts/toast.js";
import { state, update } from "../../store.js";
import { asked, LIVE, longest } from "./models.js";
import { chosenOf } from "./pairs.js";
import { ask } from "./stream.js";

const NAME = "burnish.chat";
const INTERRUPTED = "The page was closed or reloaded while this was written.";
const LATEST_FACTS_MS = [50, 200, 800, 2000]; // an answer is in the log a moment after its end

const controllers = new Map(); // key of an answer that is being written → its AbortController
let unkept = false;

const newKey = () => crypto.getRandomValues(new Uint32Array(3)).join("-");

function fresh(settings) {
  return { session: `page-${newKey()}`, turns: [], draft: "", model: LIVE, count: "1", length: null, ...settings };
}

/** @param {any[]} turns @param {string | null} [error] */
function stopped(turns, error = null) {
  const ended = (answer) => (answer.state === "writing" ? { ...answer, state: "stopped", error } : answer);
  return turns.map((turn) => ({ ...turn, answers: turn.answers.map(ended) }));
}

// A turn: {key, prompt, answers, judged: [{a, b, winner, feedback}], chosen, skipped}. An answer: {key, model, id, text,
// thought, state: "writing" | "done" | "stopped" | "failed", error, finish, version, served, rated, feedback}.
function restored() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(NAME) ?? "null");
    if (!Array.isArray(kept?.turns)) return fresh();
    return { ...fresh(), ...kept, turns: stopped(kept.turns, INTERRUPTED) };
  } catch {
    return fresh(); // the browser keeps nothing, or something else wrote there
  }
}

function keep() {
  try {
    sessionStorage.setItem(NAME, JSON.stringify(state.chat));
    unkept = false;
  } catch {
    if (!unkept && state.chat.turns.length) toast("The browser can't keep this conversation: a reload loses it. The log has it.");
    unkept = true;
  }
}

state.chat = restored();
addEventListener("pagehide", keep);

export function change(patch) {
  update({ chat: { ...state.chat, ...patch } });
}

export const turnOf = (key) => state.chat.turns.find((turn) => turn.key === key);

// `patch` is an object, or a function that gets the turn and returns one.
export function changeTurn(key, patch, { kept = true } = {}) {
  const changed = (turn) => ({ ...turn, ...(typeof patch === "function" ? patch(turn) : patch) });
  change({ turns: state.chat.turns.map((turn) => (turn.key === key ? changed(turn) : turn)) });
  if (kept) keep();
}

export function changeAnswer(turnKey, key, patch, options) {
  const changed = (answer) => ({ ...answer, ...(typeof patch === "function" ? patch(answer) : patch) });
  changeTurn(turnKey, ({ answers }) => ({ answers: answers.map((answer) => (answer.key === key ? changed(answer) : answer)) }), options);
}

const newAnswer = (model) => ({ key: newKey(), model, id: null, text: "", thought: "", state: "writing", error: null });

export function say(prompt) {
  const turn = { key: newKey(), prompt, answers: asked(state.chat).map(newAnswer), judged: [], chosen: null, skipped: false };
  change({ turns: [...state.chat.turns, turn], draft: "" });
  keep();
  for (const { key } of turn.answers) write(turn.key, key);
}

// Asks the same again: a further answer, to be compared with the others.
export function regenerate(turn) {
  const answer = newAnswer(chosenOf(turn).model);
  changeTurn(turn.key, { answers: [...turn.answers, answer], chosen: answer.key, skipped: false });
  write(turn.key, answer.key);
}

// Asks again in place of an answer that failed or was stopped.
export function retry(turn, { key, model }) {
  changeAnswer(turn.key, key, { ...newAnswer(model), key, finish: null, version: undefined });
  write(turn.key, key);
}

export function stop() {
  for (const controller of controllers.values()) controller.abort();
}

// Returns a function that brings the conversation back.
export function startOver() {
  stop();
  const before = state.chat;
  change(fresh({ model: before.model, count: before.count, length: before.length }));
  keep();
  return () => {
    stop();
    change({ ...before, turns: stopped(before.turns) });
    keep();
  };
}

// What the model is told: each message before `turn` with the answer that was chosen, and the message itself.
function messagesOf(turn) {
  const before = state.chat.turns.slice(
    0,
    state.chat.turns.findIndex(({ key }) => key === turn.key),
  );
  const said = before
    .map((each) => [each.prompt, chosenOf(each).text])
    .filter(([, text]) => text.trim())
    .flatMap(([prompt, text]) => [
      { role: "user", content: prompt },
      { role: "assistant", content: text },
    ]);
  return [...said, { role: "user", content: turn.prompt }];
}

async function write(turnKey, key) {
  const turn = turnOf(turnKey);
  const { session, length } = state.chat;
  const { model } = turn.answers.find((answer) => answer.key === key);
  const controller = new AbortController();
  controllers.set(key, controller);
  const put = (patch, options) => changeAnswer(turnKey, key, patch, options);
  try {
    const finish = await ask({
      model,
      longest: longest({ length, model }, state.status),
      messages: messagesOf(turn),
      session,
      signal: controller.signal,
      onStart: (id) => put({ id }),
      onText: ({ add, thought }) => (add || thought) && put((answer) => ({ text: answer.text + add, thought: answer.thought + thought }), { kept: false }),
    });
    put({ state: "done", finish });
  } catch (error) {
    if (error.name === "AbortError") put({ state: "stopped" });
    else put({ state: "failed", error: error.message });
  } finally {
    controllers.delete(key);
  }
  await addFacts(turnKey, key);
}

// Adds which version answered. A caller who may not read the log doesn't see it.
async function addFacts(turnKey, key) {
  const id = turnOf(turnKey)?.answers.find((answer) => answer.key === key)?.id;
  for (const pause of id ? LATEST_FACTS_MS : []) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    try {
      const { adapter_version: version, model_served: served } = await get(`/burnish/completions/${id}`);
      changeAnswer(turnKey, key, { version, served });
      return;
    } catch (error) {
      if (error.status !== 404) return;
    }
  }
}
