// Live: answers as they arrive, whichever agent asked, and one key to rate each.

import { get } from "../api.js";
import { useKeys } from "../keys.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../lib.js";
import { Button } from "../parts/button.js";
import { failed, toast } from "../parts/toast.js";
import { Welcome } from "../parts/welcome.js";
import { go, read } from "../router.js";
import { state, useStore } from "../store.js";
import { answers, isOpen } from "./live/answers.js";
import { Comment, Fix, RatingBar } from "./live/editors.js";
import { Filters, filtered, NONE } from "./live/filters.js";
import { List } from "./live/list.js";
import { Panel, useAnswer } from "./live/panel.js";
import { say, undo } from "./live/rating.js";

const PAUSE_MS = 100;
const wide = matchMedia("(min-width: 821px)"); // as in page.css: list and answer side by side

export function View({ rest: [chosen] }) {
  const search = useRef();
  const items = useItems(chosen);
  const versions = useVersions();
  const live = useStore(({ status }) => status?.live.version);
  const newest = () => answers.load();
  useMoving(items.shown, chosen, search);
  const nothing = answers.loaded && !items.shown.length && !answers.error;
  if (nothing && !filtered(answers.filters) && !chosen) return html`<${Arrivals} /><header class="view-head"><h1>Live</h1></header><${Welcome} />`;
  return html`<${Arrivals} />
    <header class="view-head">
      <h1>Live</h1>
      <${Filters} filters=${answers.filters} onChange=${filter} agents=${[...answers.agents].sort()} versions=${versions} search=${search} />
    </header>
    <div class=${`split live-split ${chosen ? "chosen" : ""}`}>
      ${
        nothing
          ? html`<${Nothing} onClear=${() => filter(NONE)} />`
          : html`<${List}
            items=${items.shown}
            chosen=${chosen}
            live=${live}
            more=${answers.more}
            cut=${answers.cut}
            error=${answers.error}
            onMore=${() => (answers.loaded ? answers.loadMore() : answers.load())}
            onNewest=${newest}
            atTop=${items.atTop}
          />`
      }
      ${chosen ? html`<${Answer} key=${chosen} id=${chosen} live=${live} />` : html`<p class="muted live-wait">Choose an answer to read and rate it.</p>`}
    </div>`;
}

// Loads the list, keeps it up to date, and chooses the first answer to rate.
function useItems(chosen) {
  const atTop = useRef(true);
  const stale = useStore(({ listsStale }) => listsStale);
  const changed = useStore(({ liveChanged }) => liveChanged);
  useEffect(() => void answers.load(), [stale]);
  const shown = useMemo(() => {
    answers.sync(atTop.current);
    return answers.items();
  }, [changed]);
  const empty = !shown.length;
  useEffect(() => {
    // The address may have left this view already: the next one is drawn a moment later.
    if (chosen || empty || !answers.loaded || !wide.matches || !here()) return;
    const first = shown.find(isOpen) ?? shown[0];
    show(first.id);
  }, [chosen, empty]);
  return { shown, atTop };
}

// Has the list drawn when answers arrive, but not for each of them: there may be dozens a second.
function Arrivals() {
  const changed = useStore(({ answersChanged }) => answersChanged);
  const last = useRef(0);
  useEffect(() => {
    const draw = () => {
      last.current = performance.now();
      answers.told();
    };
    const timer = setTimeout(draw, Math.max(0, last.current + PAUSE_MS - performance.now()));
    return () => clearTimeout(timer);
  }, [changed]);
  return null;
}

function useVersions() {
  const [versions, setVersions] = useState([0]);
  const changed = useStore(({ versionsChanged }) => versionsChanged);
  useEffect(() => {
    // Without it, there is one filter less.
    get("/burnish/adapters").then(
      ({ adapters }) => setVersions([...new Set([0, ...adapters.map(({ version }) => version)])].sort((one, other) => other - one)),
      () => {},
    );
  }, [changed]);
  return versions;
}

// Lists other answers. Keys rate the one in front, so that is one of them.
async function filter(change) {
  // What was chosen a moment ago counts, even if it isn't drawn yet.
  const listed = await answers.load({ ...answers.filters, ...change });
  const [chosen] = read().rest;
  if (!listed || !here() || !chosen || !filtered(answers.filters)) return;
  const items = answers.items();
  if (items.some(({ id, steps }) => id === chosen || steps.includes(chosen))) return;
  const first = wide.matches && (items.find(isOpen) ?? items[0]);
  go(first ? ["live", first.id] : ["live"], { replace: true });
}

const here = () => ["", "live"].includes(read().view);
const show = (id) => go(["live", id], { replace: true });

function useMoving(items, chosen, search) {
  const move = (by) => {
    const at = items.findIndex(({ id, steps }) => id === chosen || steps.includes(chosen));
    const next = at >= 0 ? at + by : items.findIndex(({ id }) => id < (chosen ?? "~"));
    if (items[next]) show(items[next].id);
  };
  useKeys("Answers", [
    { key: "j", does: "Next answer", run: () => move(1), repeats: true },
    { key: "k", does: "Answer before", run: () => move(-1), repeats: true },
    { key: "n", does: "Next answer of which nothing is said", run: () => nextUnrated(chosen ?? "~") },
    {
      key: "/",
      does: "Search",
      run: () => {
        search.current.focus();
        search.current.select();
      },
    },
    {
      key: "Escape",
      does: "Leave the search; then show all answers again",
      run: () => {
        if (document.activeElement === search.current) search.current.blur();
        else if (filtered(answers.filters)) filter(NONE);
        else if (!wide.matches) go(["live"]);
      },
    },
  ]);
}

async function nextUnrated(from) {
  try {
    const next = await answers.nextUnrated(from);
    // Somebody may have chosen another one meanwhile.
    if (next) show(next);
    else toast(filtered(answers.filters) ? "Something is said of everything that the filters leave." : "Something is said of every answer.");
  } catch (error) {
    failed("The next answer can't be found", error, () => nextUnrated(from));
  }
}

function Answer({ id, live }) {
  const box = useRef();
  const draft = useRef({});
  const [editor, setEditor] = useState(null);
  const [picked, setPicked] = useState(null);
  const answer = useAnswer(id);
  const { whole } = answer;
  const row = useRow(id, whole);
  const waits = !row;
  const choices = whole?.choices ?? [];
  const choice = picked ?? choices[0]?.index ?? 0;
  const other = choices.findIndex(({ index }) => index === choice) > 0;

  const tell = useCallback(
    async (said) => {
      if (!row) return;
      setEditor(null);
      // The next one is shown at once: who rates thirty a minute doesn't wait for the disk.
      const stored = say(row, other ? { ...said, choice } : said);
      nextUnrated(id);
      if (await stored) draft.current = {};
    },
    [row, choice, other],
  );
  const rate = (rating) => tell(typeof rating === "number" ? { rating, scale: "likert" } : { rating });
  const open = (kind) => row && setEditor(kind);
  const takeBack = async () => {
    const found = await undo();
    if (found) show(found);
  };
  const turn = (by) => {
    const next = choices[choices.findIndex(({ index }) => index === choice) + by];
    if (next) setPicked(next.index);
  };
  useKeys("The answer in front", [
    { key: "g", does: "Good", run: () => rate("good") },
    { key: "b", does: "Bad", run: () => rate("bad") },
    { key: ["1", "2", "3", "4", "5"], does: "Terrible, poor, okay, good, excellent", run: ({ key }) => rate(Number(key)) },
    { key: "c", does: "Comment: what should be different", run: () => open("comment") },
    { key: "f", does: "Fix: write the reply that you wanted", run: () => open("fix") },
    { key: "u", does: "Take back what you said last", run: takeBack },
    { key: " ", does: "Read on", run: () => box.current.scrollBy({ top: box.current.clientHeight * 0.85 }), repeats: true },
    choices.length > 1 && {
      key: ["ArrowLeft", "ArrowRight"],
      does: "The other answers to this question",
      run: ({ key }) => turn(key === "ArrowLeft" ? -1 : 1),
    },
  ]);
  const shown = choices.find(({ index }) => index === choice) ?? row ?? {};
  return html`<div class="live-answer">
    <p class="live-back"><${Button} tone="quiet" onClick=${() => go(["live"])}>← All answers<//></p>
    <${Panel} id=${id} answer=${answer} choice=${choice} onChoice=${setPicked} live=${live} box=${box}>
      ${editor === "comment" && html`<${Comment} draft=${draft} onSave=${tell} onClose=${() => setEditor(null)} />`}
      ${editor === "fix" && html`<${Fix} draft=${draft} reply=${shown.reply ?? whole?.reply} onSave=${tell} onClose=${() => setEditor(null)} />`}
      ${!editor && html`<${RatingBar} rated=${shown.rated} waits=${waits} does=${{ rate, open, undo: takeBack }} />`}
    <//>
  </div>`;
}

// What is known of a stored answer: from the list, which has ratings first, or from the answer itself.
function useRow(id, whole) {
  useStore(({ liveChanged }) => liveChanged);
  if (state.underway.has(id)) return null;
  return answers.find(id) ?? (whole ? { id, prompt: whole.prompt, rating: whole.rating, rated: whole.rated } : null);
}

function Nothing({ onClear }) {
  return html`<div class="live-none">
    <p>No answer fits these filters.</p>
    <${Button} keys="Escape" onClick=${onClear}>Show all answers<//>
  </div>`;
}
