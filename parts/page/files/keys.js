// Keys of the views. The help sheet is made from what is bound, so it never names a key that does nothing.
import { useLayoutEffect, useRef } from "./lib.js";

/** @type {{name: string, bindings: any[], modal: boolean}[]} */
const groups = []; // the last one is asked first, after modal ones

// `bindings`: [{key, does, run, inFields?, repeats?, hidden?}]. `key` is as in KeyboardEvent.key, capitals mean Shift;
// a list has several keys for one thing. `inFields`: works while a text field has the focus; "empty": while it is empty,
// unless a character follows at once, for then both are text. `repeats`: a key that is held down counts several times. `hidden`: not in the help sheet. `modal`: keys of other groups don't work meanwhile.
export function useKeys(group, bindings, { modal = false } = {}) {
  const entry = useRef();
  entry.current ??= { name: group };
  entry.current.bindings = bindings;
  entry.current.modal = modal;
  // What is drawn can be used: an effect would wait for the next frame.
  useLayoutEffect(() => {
    groups.push(entry.current);
    return () => groups.splice(groups.indexOf(entry.current), 1);
  }, []);
}

// Returns [{name, bindings}] for the help sheet.
export function bound() {
  return groups.map(({ name, bindings }) => ({ name, bindings: bindings.filter((each) => each && !each.hidden) })).filter(({ bindings }) => bindings.length);
}

const NAMES = {
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  Escape: "Esc",
  Enter: "↵",
  " ": "Space",
  Backspace: "⌫",
  Delete: "Del",
};

export function keyName(key) {
  if (NAMES[key]) return NAMES[key];
  return /^[A-Z]$/.test(key) ? `⇧${key}` : key;
}

function pressed({ key, shiftKey }) {
  // Caps lock turns letters round.
  return /^[a-z]$/i.test(key) ? (shiftKey ? key.toUpperCase() : key.toLowerCase()) : key;
}

function isField(element) {
  if (!element) return false;
  if (element.isContentEditable || ["TEXTAREA", "SELECT"].includes(element.tagName)) return true;
  return element.tagName === "INPUT" && !["button", "checkbox", "radio", "range", "submit"].includes(element.type);
}

const ACTIVATES = new Set(["Enter", " "]);
const PRESSABLE = "a[href], button, summary, input, [role=button], [role=option], [role=tab]";

const TYPING_MS = 400; // who types a word is faster

/** @type {null | {key: string, field: any, act: () => void, timer: any}} */
let waiting = null; // a key that was pressed in an empty field

function wait({ key, target: field }, run) {
  const act = () => {
    waiting = null;
    run();
  };
  waiting = { key, field, act, timer: setTimeout(act, TYPING_MS) };
}

// What comes next tells what the key was that waits: the beginning of a text, if there is no `next` key or it is a character.
function decide({ key: next = " ", target, repeat = false }) {
  if (!waiting || next === "Shift" || repeat) return;
  const { key, field, act, timer } = waiting;
  clearTimeout(timer);
  waiting = null;
  if (target === field && next.length === 1) {
    field.setRangeText(key, 0, 0, "end");
    field.dispatchEvent(new InputEvent("input", { bubbles: true }));
  } else if (next !== "Backspace" && next !== "Escape") act();
}

addEventListener("beforeinput", decide); // pasted, dictated, or composed of several keys

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  decide(event);
  const key = pressed(event);
  const target = event.target instanceof Element ? event.target : null;
  if (ACTIVATES.has(key) && target?.closest(PRESSABLE)) return;
  const field = isField(target);
  // A view may be loaded while a dialog is open; the dialog's keys still come first.
  const asked = [...groups].reverse().sort((one, other) => Number(other.modal) - Number(one.modal));
  for (const { bindings, modal } of asked) {
    const found = bindings.find((each) => each && [each.key].flat().includes(key));
    const waits = field && found?.inFields === "empty";
    if (waits && event.target.value === "") {
      event.preventDefault();
      if (!event.repeat) wait(event, () => found.run(event));
      return;
    }
    if (found && !waits && (!field || found.inFields || key === "Escape") && (!event.repeat || found.repeats)) {
      event.preventDefault();
      found.run(event);
      return;
    }
    if (found || modal) break;
  }
  if (field && key === "Escape") leaveField();
}

addEventListener("keydown", onKey);

export function leaveField() {
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
}
