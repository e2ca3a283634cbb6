// One answer with its conversation, and what can be said of it.

import { get } from "../../api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../lib.js";
import { Badge, RatingBadge, RewardBadge, VersionBadge } from "../../parts/badge.js";
import { Button } from "../../parts/button.js";
import { Conversation, Fold, Said } from "../../parts/conversation.js";
import { Note } from "../../parts/note.js";
import { Text } from "../../parts/text.js";
import { duration, Time } from "../../parts/time.js";
import { useStore } from "../../store.js";
import { Sayings } from "./sayings.js";

const number = new Intl.NumberFormat("en");

// Loads an answer, and again when burnish tells that it changed. Returns {whole, error, again}.
export function useAnswer(id) {
  const [loaded, setLoaded] = useState(/** @type {{id?: string, whole?: any, error?: any}} */ ({}));
  const [tries, setTries] = useState(0);
  const row = useStore(({ answers }) => answers.get(id));
  const stale = useStore(({ listsStale }) => listsStale);
  const arriving = useStore(({ underway }) => underway.has(id));
  useEffect(() => {
    if (!id || arriving) return undefined;
    let current = true;
    const set = (found) => current && setLoaded({ id, ...found });
    get(`/burnish/completions/${encodeURIComponent(id)}`).then(
      (whole) => set({ whole }),
      (error) => set({ error }),
    );
    return () => {
      current = false;
    };
  }, [id, row, stale, arriving, tries]);
  const again = () => setTries(tries + 1);
  return loaded.id === id ? { ...loaded, again } : { whole: undefined, error: undefined, again };
}

export function Panel({ id, answer: { whole, error, again }, choice, onChoice, live, box, children }) {
  const arriving = useStore(({ underway }) => underway.get(id));
  const shown = useRef(/** @type {{id?: string, arriving?: any}} */ ({}));
  // What came as a stream stays until the whole answer is there.
  if (arriving) shown.current = { id, arriving };
  const streamed = arriving ?? (shown.current.id === id && !whole ? shown.current.arriving : null);
  useFollowing(box, id, whole, arriving?.text);
  return html`<section class="live-panel" aria-label="Answer">
    <div class="live-read" ref=${box} tabindex="0" role="group" aria-label="Conversation">
      ${
        error && !whole
          ? html`<${Missing} error=${error} again=${again} />`
          : streamed
            ? html`<${Arriving} answer=${streamed} live=${live} />`
            : whole
              ? html`<${Whole} whole=${whole} choice=${choice} onChoice=${onChoice} live=${live} />`
              : html`<p class="muted live-wait">Loading …</p>`
      }
    </div>
    ${children}
  </section>`;
}

// A stored answer is shown from where the question begins; one that arrives is followed, unless somebody scrolls up.
function useFollowing(box, id, whole, text) {
  const follows = useRef(true);
  useEffect(() => {
    follows.current = true;
    const scrolled = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
      follows.current = scrollHeight - scrollTop - clientHeight < 40;
    };
    box.current.addEventListener("scroll", scrolled, { passive: true });
    return () => box.current?.removeEventListener("scroll", scrolled);
  }, [id]);
  useLayoutEffect(() => {
    if (text !== undefined && follows.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  useLayoutEffect(() => {
    if (!whole) return;
    const asked = [...box.current.querySelectorAll(".said.user")].at(-1);
    box.current.scrollTop = asked ? asked.offsetTop - box.current.offsetTop - 12 : box.current.scrollHeight;
  }, [id, Boolean(whole)]);
}

function Missing({ error, again }) {
  if (error.status === 404) {
    return html`<${Note} tone="warn" title="This answer isn't in the log.">
      <p>It was erased, or the address names none. Choose another one from the list.</p>
    <//>`;
  }
  return html`<${Note} tone="bad" title="This answer can't be shown."><p>${error.message}</p><${Button} onClick=${again}>Try again<//><//>`;
}

function Arriving({ answer, live }) {
  const { text, tools, thinks } = answer;
  return html`<${Facts} of=${{ ...answer, adapter_version: answer.version, model_served: answer.model_asked }} live=${live}>
      <${Badge} tone="accent">writing<//>
    <//>
    <div class="conversation">
      <article class="said user"><h2>Asked</h2><${Text}>${answer.prompt}<//></article>
      <article class="said assistant arriving">
        <h2>Answering</h2>
        ${text ? html`<${Said} message=${{ role: "assistant", content: text }} live />` : html`<p class="muted">${thinks ? "The model thinks …" : "Waiting for the first words …"}</p>`}
        ${tools.length > 0 && html`<p class="muted">Calls ${tools.slice(-5).join(", ")}</p>`}
      </article>
    </div>`;
}

function Whole({ whole, choice, onChoice, live }) {
  const picked = whole.choices.find(({ index }) => index === choice);
  return html`<${Facts} of=${whole} live=${live}>
      ${whole.outcome !== "complete" && html`<${Badge} tone="bad">${OUTCOMES[whole.outcome]}<//>`}
      <${RatingBadge} rating=${picked ? picked.rating : whole.rating} word=${picked ? picked.rated : whole.rated} />
      <${RewardBadge} reward=${whole.reward} />
    <//>
    <${Conversation} key=${whole.id} messages=${whole.messages} />
    ${whole.choices.length > 1 && html`<${Choices} choices=${whole.choices} choice=${choice} onChoice=${onChoice} />`}
    ${(picked ?? whole).reply && html`<${Conversation} key=${`${whole.id}/${choice}`} messages=${[(picked ?? whole).reply]} />`}
    ${whole.error && html`<${Note} tone="bad" title="The model's server answered with an error."><${Text} fold=${2000}>${whole.error}<//><//>`}
    ${!whole.usable && whole.reason && html`<p class="muted small">burnish can't learn from this answer: ${whole.reason}.</p>`}
    <${Sayings} whole=${whole} />
    <${Details} whole=${whole} />`;
}

const OUTCOMES = { cut: "broke off", cancelled: "stopped by the client", failed: "failed" };

function Choices({ choices, choice, onChoice }) {
  return html`<div class="line-up" role="group" aria-label="Answers to this question">
    ${choices.map(
      ({ index, rating, rated }, at) => html`<${Button} key=${index} pressed=${index === choice} onClick=${() => onChoice(index)}>
        Answer ${at + 1} of ${choices.length}${rating != null ? `: ${rated}` : ""}
      <//>`,
    )}
  </div>`;
}

function Facts({ of: { adapter_version, model_served, agent, caller, created_at }, live, children }) {
  return html`<header class="live-facts">
    <${VersionBadge} version=${adapter_version} model=${model_served} live=${live} />
    ${children}
    <span class="muted small">${[agent, caller].filter((each) => each && each !== "local").map((each) => `${each} · `)}<${Time} at=${created_at} /></span>
  </header>`;
}

function Details({ whole }) {
  const tokens = (count) => count != null && `${number.format(count)} tokens`;
  const facts = [
    ["Answer", whole.id],
    ["Conversation", whole.conversation_id],
    ["Session", whole.session],
    ["Asked by", whole.caller],
    ["Agent", whole.agent],
    ["Model asked for", whole.model_asked],
    ["Model that answered", whole.model_served],
    ["Time taken", duration(whole.total_s)],
    ["First words after", whole.first_byte_s != null && duration(whole.first_byte_s)],
    ["Question", tokens(whole.prompt_tokens)],
    ["Reply", tokens(whole.completion_tokens)],
    ["Ended because", whole.finish_reason],
    ["Reward model", whole.rewarded_by],
    ["Sent instead, as the best of several", whole.best_of !== whole.id && whole.best_of],
    ["Added to the system prompt", whole.instructions],
  ];
  return html`<${Fold} label="Details">${() => html`<dl class="facts">
    ${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${typeof value === "string" ? html`<${Text}>${value}<//>` : value}</dd></div>`)}
  </dl>`}<//>`;
}
