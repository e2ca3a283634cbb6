// Duel: two versions' answers to one prompt. Which is which is told only after the judgement.

import { get, send } from "../api.js";
import { leaveField, useKeys } from "../keys.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { VersionBadge } from "../parts/badge.js";
import { Button, Kbd } from "../parts/button.js";
import { wordDiff } from "../parts/diff.js";
import { useMay } from "../parts/may.js";
import { Note } from "../parts/note.js";
import { counted } from "../parts/number.js";
import { Prose } from "../parts/prose.js";
import { plain, sentence, Text } from "../parts/text.js";
import { failed, toast } from "../parts/toast.js";
import { useStore } from "../store.js";

const SIDES = ["left", "right"];
const GONE = new Set(["not_found", "judged", "version_gone"]); // the pair can't be judged; others can

export function View() {
  const duels = useDuels();
  const { pair, verdict, loaded } = duels;
  const [marked, setMarked] = useState(false);
  const field = useRef();
  const open = pair && !verdict;
  const canAsk = useMay("steer") && loaded?.can_ask;
  useKeys("Duel", [
    open && { key: "ArrowLeft", does: "The left answer is better", run: () => duels.judge("left") },
    open && { key: "=", does: "Both are equally good", run: () => duels.judge("equal") },
    open && { key: "ArrowRight", does: "The right answer is better", run: () => duels.judge("right") },
    pair && { key: "d", does: "Mark the words that differ", run: () => setMarked(!marked) },
    open && { key: "s", does: "Skip this pair", run: duels.skip },
    verdict && { key: ["Enter", "n"], does: "Next pair", run: duels.next },
    verdict?.feedback && !verdict.undone && { key: "u", does: "Take the judgement back", run: duels.undo },
    canAsk && { key: "a", does: "Ask both versions something", run: () => field.current?.focus() },
    { key: "Escape", does: "Leave the text field", run: () => leaveField(), inFields: true, hidden: true },
  ]);
  return html`<header class="view-head">
      <h1>Duel</h1>
      <div class="end muted small">${loaded?.judged > 0 && `${counted(loaded.judged, "pair")} judged`}</div>
    </header>
    <div class="page duel">
      ${
        duels.error &&
        html`<${Note} tone="bad" title="The pairs can't be shown.">
        <p>${sentence(duels.error.message)}</p><${Button} onClick=${duels.load}>Try again<//>
      <//>`
      }
      ${pair && html`<${Pair} key=${pair.id} pair=${pair} verdict=${verdict} marked=${marked} onMark=${() => setMarked(!marked)} duels=${duels} />`}
      ${loaded && !pair && html`<${Empty} reason=${loaded.reason} />`}
      ${canAsk && html`<${Ask} field=${field} onAnswered=${duels.show} />`}
    </div>`;
}

// The pairs to judge, the first of which is shown, and what became of it.
function useDuels() {
  const [loaded, setLoaded] = useState(null);
  const [pairs, setPairs] = useState(/** @type {any[]} */ ([]));
  const [verdict, setVerdict] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(null);
  const stale = useStore(({ listsStale, versionsChanged }) => `${listsStale} ${versionsChanged}`);
  const [pair] = pairs;

  async function load() {
    try {
      const found = await get("/burnish/duels");
      setError(null);
      setLoaded(found);
      // What the person reads stays; if it was erased meanwhile, the judgement says so.
      setPairs(([shown]) => (shown ? [shown, ...found.data.filter(({ id }) => id !== shown.id)] : found.data));
    } catch (fault) {
      setError(fault);
    }
  }
  useEffect(() => void load(), [stale]);

  function next() {
    setVerdict(null);
    setPairs(([, ...others]) => others);
    if (pairs.length < 2) load();
  }

  async function judge(choice) {
    if (busy) return;
    setBusy(choice);
    try {
      setVerdict(await send("POST", "/burnish/duels", { id: pair.id, choice }));
      setLoaded((old) => ({ ...old, judged: old.judged + 1 }));
    } catch (fault) {
      if (GONE.has(fault.code)) {
        toast(sentence(fault.message), { tone: "bad" });
        next();
      } else failed("Your judgement wasn't stored", fault, () => judge(choice));
    } finally {
      setBusy(null);
    }
  }

  async function undo() {
    try {
      await send("DELETE", `/v1/feedback/${verdict.feedback.id}`);
      setVerdict({ ...verdict, undone: true });
    } catch (fault) {
      failed("Your judgement wasn't taken back", fault, undo);
    }
  }

  const skip = () => setPairs(([first, ...others]) => [...others, first]);
  const told = useRef();
  told.current = verdict;
  // What was judged while the versions answered goes.
  const show = (asked) => {
    const done = told.current?.id;
    setVerdict(null);
    setPairs((old) => [asked, ...old.filter(({ id }) => id !== done)]);
  };
  return { pair, left: pairs.length, verdict, loaded, error, busy, load, judge, next, undo, skip, show };
}

function Pair({ pair, verdict, marked, onMark, duels }) {
  const words = useMemo(() => marked && wordDiff(plain(pair.left.text), plain(pair.right.text)), [marked, pair]);
  return html`<section class="stack" aria-label="The prompt">
      ${
        pair.before.length > 0 &&
        html`<details>
        <summary>${counted(pair.before.length, "earlier message")}</summary>
        <dl class="before">${pair.before.map(({ role, text }) => html`<dt>${role}</dt><dd><${Text}>${text}<//></dd>`)}</dl>
      </details>`
      }
      <h2 class="for-readers">Prompt</h2>
      <${Text} class="asked">${pair.prompt}<//>
    </section>
    <div class="sides">
      ${SIDES.map((side, index) => html`<${Side} key=${side} side=${side} answer=${pair[side]} words=${words?.[index]} verdict=${verdict} />`)}
    </div>
    ${marked && !words && html`<p class="muted">The answers are too long to mark their words.</p>`}
    <div class="judging">
      ${verdict ? html`<${Reveal} verdict=${verdict} duels=${duels} />` : html`<${Choices} duels=${duels} />`}
      <div class="line-up others">
        <${Button} tone="quiet" keys="d" pressed=${marked} onClick=${onMark}>Mark differences<//>
        ${!verdict && duels.left > 1 && html`<${Button} tone="quiet" keys="s" onClick=${duels.skip}>Skip<//>`}
      </div>
    </div>`;
}

function Side({ side, answer, words, verdict }) {
  const live = useStore(({ status }) => status?.live.version);
  const chosen = verdict?.choice === side;
  return html`<section class=${`card side-of-duel ${chosen ? "chosen" : ""}`} aria-label=${`The ${side} answer`}>
    <div class="spread">
      <h2>${side === "left" ? "Left" : "Right"}</h2>
      ${verdict && html`<span class="line-up">${chosen && "You preferred"} <${VersionBadge} version=${verdict[side].version} live=${live} /></span>`}
    </div>
    ${words ? html`<div class="text" dir="auto">${words.map(({ text, own }) => (own ? html`<mark>${text}</mark>` : text))}</div>` : html`<${Prose}>${answer.text}<//>`}
    ${answer.cut && html`<p class="muted small">Cut off here: it was allowed no more words.</p>`}
  </section>`;
}

function Choices({ duels: { judge, busy } }) {
  const button = (choice, key, text) =>
    html`<${Button} keys=${key} busy=${busy === choice} disabled=${Boolean(busy)} onClick=${() => judge(choice)}>${text}<//>`;
  return html`<div class="choices" role="group" aria-label="Which answer is better?">
    ${button("left", "ArrowLeft", html`Left<span class="more"> is better</span>`)}
    ${button("equal", "=", html`Equal<span class="more">ly good</span>`)}
    ${button("right", "ArrowRight", html`Right<span class="more"> is better</span>`)}
  </div>`;
}

function Reveal({ verdict, duels }) {
  const taught = verdict.undone
    ? "You took it back, so nothing is learnt from it."
    : verdict.usable
      ? "The next training run learns from it."
      : `Nothing is learnt from it: ${verdict.reason}.`;
  return html`<div class="reveal">
    <p role="status"><strong>Left is ${verdict.left.name}, right is ${verdict.right.name}.</strong> ${taught}</p>
    <div class="line-up">
      ${verdict.feedback && !verdict.undone && html`<${Button} keys="u" onClick=${duels.undo}>Take it back<//>`}
      <${Button} tone="main" keys="Enter" onClick=${duels.next}>${duels.left > 1 ? "Next pair" : "Done"}<//>
    </div>
  </div>`;
}

function Empty({ reason }) {
  return html`<div class="empty">
    <h2>Nothing to judge</h2>
    ${reason && html`<p class="muted">${sentence(reason)}</p>`}
  </div>`;
}

function Ask({ field, onAnswered }) {
  const [prompt, setPrompt] = useState("");
  const [busy, setBusy] = useState(false);
  const [same, setSame] = useState(null);

  async function ask(event) {
    event?.preventDefault();
    if (busy || !prompt.trim()) return;
    setBusy(true);
    setSame(null);
    try {
      const asked = await send("POST", "/burnish/duels/ask", { prompt });
      if (asked.id) {
        setPrompt("");
        field.current?.blur(); // the keys judge again
        onAnswered(asked);
      } else setSame(asked.same);
    } catch (fault) {
      failed("The versions weren't asked", fault, ask);
    } finally {
      setBusy(false);
    }
  }
  const onKeyDown = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && ask(event);

  return html`<form class="stack asking" onSubmit=${ask}>
    <label class="field">
      <span>Ask two versions something of your own <${Kbd} of="a" /></span>
      <textarea class="input" rows="2" ref=${field} value=${prompt} disabled=${busy} maxlength="20000" aria-keyshortcuts="a"
        onInput=${({ target }) => setPrompt(target.value)} onKeyDown=${onKeyDown} />
    </label>
    <div class="spread">
      <span class="muted small">Enter asks, Shift and Enter begin a new line.</span>
      <${Button} type="submit" busy=${busy} disabled=${!prompt.trim()}>${busy ? "Both are answering" : "Ask both"}<//>
    </div>
    ${same && html`<${Note} title="Both versions gave the same answer, word for word."><${Text}>${same}<//><//>`}
  </form>`;
}
