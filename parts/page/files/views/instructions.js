// Instructions: what a user asked for in earlier feedback, which burnish tells the model before each answer.

import { send } from "../api.js";
import { useKeys } from "../keys.js";
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { Badge } from "../parts/badge.js";
import { Button } from "../parts/button.js";
import { Note } from "../parts/note.js";
import { line, plain } from "../parts/text.js";
import { Time } from "../parts/time.js";
import { failed, toast } from "../parts/toast.js";
import { signed } from "../session.js";
import { useStore } from "../store.js";

const PATH = "/burnish/instructions";
const LONGEST = 200; // characters, as burnish takes them
const STATES = {
  active: ["good", "Told to the model", "It is added to each of this user's requests."],
  learnt: ["accent", "Learnt", "The version that answers now has learnt it, so it isn't told any more."],
  displaced: ["", "Waits", "There are enough newer ones. Remove one of them to use it."],
};
const HEADER = /^[\x20-\x7e\xa0-\xff]+$/; // what a request header can name

export function View() {
  const [user, setUser] = useState(null); // null: the one that this browser is
  const [list, setList] = useState(/** @type {{found?: any, error?: any}} */ ({}));
  const [editing, setEditing] = useState(null);
  const changes = useStore(
    ({ status, versionsChanged, listsStale }) => `${status?.counts.ratings} ${status?.counts.comments} ${versionsChanged} ${listsStale}`,
  );
  const ask = useCallback((method, path, /** @type {any} */ body = undefined) => send(method, path, body, { headers: as(user) }), [user]);
  const load = useCallback(
    () =>
      ask("GET", PATH).then(
        (found) => setList({ found }),
        (error) => setList({ error }),
      ),
    [ask],
  );
  useEffect(() => void load(), [load, changes]);
  const field = useRef();
  useKeys("Instructions", [{ key: "a", does: "Add an instruction", run: () => field.current?.focus() }]);
  const change = async (method, path, body, done, /** @type {any} */ undo = undefined) => {
    try {
      const changed = await ask(method, path, body);
      toast(done, { action: undo && { label: "Undo", run: () => undo(changed) } });
      setEditing(null);
      await load();
      return true;
    } catch (error) {
      failed("That wasn't stored", error, () => change(method, path, body, done, undo));
      return false;
    }
  };
  const add = (text) => change("POST", PATH, { text }, "Added.");
  const edit = ({ id, text: before }, text) => {
    const undo = (changed) => change("PATCH", `${PATH}/${changed.id}`, { text: before }, "It reads as before.");
    return change("PATCH", `${PATH}/${id}`, { text }, "Changed.", undo);
  };
  const remove = ({ id, text }) => change("DELETE", `${PATH}/${id}`, undefined, "Removed.", () => add(text));
  return html`<header class="view-head"><h1>Instructions</h1><div class="end"><${Whose} user=${user} caller=${list.found?.caller} onChange=${setUser} /></div></header>
    <div class="page">
      <p class="muted">When you say what was wrong with an answer, burnish tells the model before the next one. Once a version has learnt it, burnish stops telling.</p>
      ${list.error && html`<${Note} tone="bad" title="The instructions couldn't be loaded."><p>${list.error.message}</p><${Button} onClick=${load}>Try again<//><//>`}
      ${
        list.found &&
        html`<${Switch} on=${list.found.instructions} />
        <${Add} field=${field} onAdd=${add} />
        ${
          list.found.data.length
            ? html`<ul class="instructions" aria-label="Instructions">${list.found.data.map(
                (each) => html`<${Instruction}
            key=${each.id} instruction=${each} on=${list.found.instructions} editing=${editing === each.id}
            onEdit=${() => setEditing(each.id)} onSave=${(text) => edit(each, text)} onCancel=${() => setEditing(null)} onRemove=${() => remove(each)} />`,
              )}</ul>`
            : html`<${Note} title="There are none yet."><p>Rate an answer as bad and say why, for example "too long". Or add one here.</p><//>`
        }
        ${list.found.text && html`<details><summary>What the model is told, word for word</summary><pre class="told">${plain(list.found.text)}</pre></details>`}`
      }
    </div>`;
}

function as(user) {
  return user === null ? signed() : { ...signed(), "x-burnish-user": user };
}

// Raters are the users who may have instructions. Without the right to list them, there is only your own list.
function Whose({ user, caller, onChange }) {
  const may = useStore(({ whoami }) => whoami?.may.includes("read") ?? true);
  const [names, setNames] = useState([]);
  useEffect(() => {
    if (may)
      send("GET", "/burnish/raters").then(
        ({ data }) => setNames(data.map(({ name }) => name).filter((name) => HEADER.test(name))),
        () => {},
      );
  }, [may]);
  const all = [...new Set([caller, user, ...names].filter(Boolean))];
  if (all.length < 2) return null;
  return html`<label class="line-up small">Of
    <select class="input whose" value=${user ?? caller} onChange=${(event) => onChange(event.target.value)}>
      ${all.map((name) => html`<option key=${name} value=${name}>${line(name)}</option>`)}
    </select>
  </label>`;
}

function Switch({ on }) {
  if (on) return null;
  return html`<${Note} tone="warn" title="Instructions are off, so the model isn't told any of these.">
    <p>You can edit them all the same. To turn them on, set <code>instructions = true</code> in burnish's configuration and start it again.</p>
  <//>`;
}

function Add({ field, onAdd }) {
  const [text, setText] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    if (text.trim() && (await onAdd(text.trim()))) setText("");
  };
  return html`<form class="instruction-add" onSubmit=${submit}>
    <label class="field"><span>Add an instruction <kbd>a</kbd></span>
      <input ref=${field} class="input" maxlength=${LONGEST} placeholder="Answer in three sentences at most." value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <${Button} tone="main" type="submit" disabled=${!text.trim()}>Add<//>
  </form>`;
}

function Instruction({ instruction, on, editing, onEdit, onSave, onCancel, onRemove }) {
  const { text, comment, by_hand: byHand, feedback_ids: said, latest_at: at, state } = instruction;
  const [tone, word, why] = on ? STATES[state] : ["", "Off", "Instructions are off."];
  return html`<li class="card">
    ${editing ? html`<${Editor} text=${text} onSave=${onSave} onCancel=${onCancel} />` : html`<p class="instruction-text" dir="auto">${plain(text)}</p>`}
    <p class="row-foot">
      <${Badge} tone=${tone} title=${why}>${word}<//>
      <span>${byHand ? "Added by hand" : said.length === 1 ? "From one comment" : `From ${said.length} comments`}, <${Time} at=${at} /></span>
      ${comment && comment !== text && html`<span class="comment">You said: “${line(comment)}”</span>`}
    </p>
    ${
      !editing &&
      html`<p class="line-up"><${Button} tone="quiet" aria-label=${`Edit: ${line(text, 60)}`} onClick=${onEdit}>Edit<//>
      <${Button} tone="quiet" aria-label=${`Remove: ${line(text, 60)}`} onClick=${onRemove}>Remove<//></p>`
    }
  </li>`;
}

function Editor({ text, onSave, onCancel }) {
  const [words, setWords] = useState(text);
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  useKeys("While you edit", [{ key: "Escape", does: "Leave it as it was", run: onCancel, inFields: true }]);
  const submit = (event) => {
    event.preventDefault();
    if (words.trim() === text) onCancel();
    else if (words.trim()) onSave(words.trim());
  };
  return html`<form class="instruction-add" onSubmit=${submit}>
    <input ref=${field} class="input" aria-label="Instruction" maxlength=${LONGEST} value=${words} onInput=${(event) => setWords(event.target.value)} />
    <span class="line-up"><${Button} tone="main" type="submit" disabled=${!words.trim()}>Save<//><${Button} tone="quiet" keys="Escape" onClick=${onCancel}>Cancel<//></span>
  </form>`;
}
