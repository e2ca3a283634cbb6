// Chat: talk with the model, and say which answers are good.

import { get } from "../api.js";
import { leaveField, useKeys } from "../keys.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { Button } from "../parts/button.js";
import { toast } from "../parts/toast.js";
import { useStore } from "../store.js";
import { Turn } from "./chat/answers.js";
import { Comment } from "./chat/comment.js";
import { Composer } from "./chat/composer.js";
import { choicesOf, modelsIn } from "./chat/models.js";
import { chosenOf, pairOf } from "./chat/pairs.js";
import { judge, POINTS, rate, undo } from "./chat/said.js";
import { changeTurn, regenerate, startOver, stop } from "./chat/talk.js";

const NEAR_END_PX = 120; // who has scrolled up further than this reads, and isn't moved

export function View() {
  const chat = useStore((state) => state.chat);
  const live = useStore(({ status }) => status?.live.version);
  const choices = choicesOf(useModels(), live);
  const [chosen, select] = useState(null);
  const [commented, setCommented] = useState(null);
  const field = useRef();
  const latest = chat.turns.at(-1);
  const writing = chat.turns.some(({ answers }) => answers.some(({ state }) => state === "writing"));
  const rateable = chat.turns.flatMap((turn) => turn.answers.filter(({ state, id }) => state === "done" && id).map((answer) => ({ turn, answer })));
  const selected =
    rateable.find(({ answer }) => answer.key === chosen) ?? rateable.find(({ answer }) => latest && answer === chosenOf(latest)) ?? rateable.at(-1);
  const onComment = (turn, answer) => setCommented({ turn, answer });
  const [begun, begin] = useState(false); // who went to the field wants to write
  useEffect(() => begin(false), [chat.turns.length, writing]);
  const rates = Boolean(selected) && !writing && !begun && !chat.draft;
  useChatKeys({ chat, latest, writing, rateable, selected, select, onComment, field, rates, begin });
  useFollow(chat);
  return html`<header class="view-head">
      <h1>Chat</h1>
      <div class="end"><${Button} keys="n" disabled=${!chat.turns.length} onClick=${newChat}>New chat<//></div>
    </header>
    <div class="thread">
      ${
        latest
          ? chat.turns.map(
              (turn) =>
                html`<${Turn} key=${turn.key} turn=${turn} latest=${turn === latest} live=${live} selected=${selected?.answer.key} onSelect=${select} onComment=${onComment} />`,
            )
          : html`<${Welcome} />`
      }
    </div>
    <p class="for-readers" role="status">${latest && (writing ? "The answer is being written." : "The answer has ended.")}</p>
    <${Composer} chat=${chat} choices=${choices} live=${live} writing=${writing} field=${field} rates=${rates} onBegin=${() => begin(true)} />
    ${commented && html`<${Comment} ...${commented} onClose=${() => setCommented(null)} />`}`;
}

function newChat() {
  const back = startOver();
  toast("A new chat.", { action: { label: "Back to the last one", run: back } });
}

function Welcome() {
  return html`<div class="empty">
    <h2>Talk with your model, and tell it what you like</h2>
    <p>Rate an answer as good or bad, or say in words what should be different. burnish trains your model on that.</p>
    <p class="muted">Ask for two answers or more to say which one is better. You can also put two versions side by side: you see which is which once you have chosen.</p>
  </div>`;
}

function useModels() {
  const [models, setModels] = useState([]);
  const changed = useStore((state) => state.versionsChanged);
  useEffect(() => {
    // Not every upstream lists its models. The live version can be asked without a list.
    get("/v1/models").then(
      (listed) => setModels(modelsIn(listed)),
      () => setModels([]),
    );
  }, [changed]);
  return models;
}

// `rates`: the keys work in the empty text field, too.
function useChatKeys({ chat, latest, writing, rateable, selected, select, onComment, field, rates, begin }) {
  const pair = latest && pairOf(latest);
  const move = (step) => {
    const place = rateable.indexOf(selected) + step;
    const next = rateable[Math.max(0, Math.min(rateable.length - 1, place))];
    select(next.answer.key);
    document.getElementById(`answer-${next.answer.key}`)?.scrollIntoView({ block: "nearest" });
  };
  const about = (does, run) => selected && { does, run: () => run(selected.turn, selected.answer) };
  const compare = (does, winner) => pair && { does, inFields: !chat.draft, run: () => judge(latest, pair, winner) };
  const write = () => {
    begin(true);
    field.current.focus();
  };
  const keys = [
    { key: ["i", "/"], does: "Write a message", run: write },
    {
      key: "Escape",
      does: writing ? "Stop the answer" : "Leave the text field",
      inFields: true,
      run: () => (writing ? stop() : leaveField()),
    },
    selected && { key: "j", does: "Next answer", repeats: true, run: () => move(1) },
    selected && { key: "k", does: "Previous answer", repeats: true, run: () => move(-1) },
    selected && { key: "g", ...about("Good", (turn, answer) => rate(turn, answer, "good")) },
    selected && { key: "b", ...about("Bad", (turn, answer) => rate(turn, answer, "bad")) },
    ...POINTS.map(
      (word, index) => selected && { key: String(index + 1), ...about(`${index + 1} of 5: ${word}`, (turn, answer) => rate(turn, answer, index + 1)) },
    ),
    selected && { key: "c", ...about("Comment", onComment) },
    selected && { key: "u", does: "Take back what you said last", run: undo },
    latest && !writing && { key: "r", does: "Another answer to compare", run: () => regenerate(latest) },
    pair && { key: "ArrowLeft", ...compare("The left answer is better", pair.left) },
    pair && { key: "ArrowRight", ...compare("The right answer is better", pair.right) },
    pair && { key: "=", does: "Both are equal", run: () => judge(latest, pair, null) },
    pair && { key: "s", does: "Skip the comparison", run: () => changeTurn(latest.key, { skipped: true }) },
    latest && { key: "n", does: "New chat", run: newChat },
  ];
  useKeys(
    "Chat",
    keys.filter(Boolean).map((each) => ({ inFields: rates && "empty", ...each })),
  );
}

// Keeps the end in sight while an answer is written, unless the person reads further up.
function useFollow(chat) {
  const wasNear = useRef(true);
  useEffect(() => {
    const view = /** @type {HTMLElement} */ (document.getElementById("main"));
    const onScroll = () => {
      wasNear.current = view.scrollHeight - view.scrollTop - view.clientHeight < NEAR_END_PX;
    };
    view.addEventListener("scroll", onScroll, { passive: true });
    return () => view.removeEventListener("scroll", onScroll);
  }, []);
  useEffect(() => {
    wasNear.current = true;
  }, [chat.turns.length]);
  useLayoutEffect(() => {
    const view = /** @type {HTMLElement} */ (document.getElementById("main"));
    if (wasNear.current) view.scrollTop = view.scrollHeight;
  }, [chat.turns]);
}
