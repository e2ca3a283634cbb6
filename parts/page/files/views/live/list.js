// The list of answers. Only the rows on the screen are in the document, whatever the length of the list.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../lib.js";
import { Badge, RatingBadge, RewardBadge, VersionBadge } from "../../parts/badge.js";
import { Button } from "../../parts/button.js";
import { Note } from "../../parts/note.js";
import { Time } from "../../parts/time.js";
import { address } from "../../router.js";

const ROW_REM = 4.75; // as in live.css
const AHEAD = 6; // rows beyond the screen, so that scrolling shows no gaps
const NEAR_END = 15; // rows before the end at which more are loaded

const REM = parseFloat(getComputedStyle(document.documentElement).fontSize);

// `atTop`: a ref that is told whether the newest row is on the screen.
export function List({ items, chosen, live, more, cut, error, onMore, onNewest, atTop }) {
  const box = useRef();
  const anchor = useRef({ id: null, within: 0 }); // the first row on the screen
  const [view, setView] = useState({ first: 0, height: 800 });
  const height = ROW_REM * REM;

  // Asking for these after each change would have the browser lay out everything at once, many times a second.
  const seen = useRef({ top: 0, height: 800 });
  const placed = () => {
    const { top, height: shown } = seen.current;
    const first = Math.floor(top / height);
    atTop.current = top < height;
    anchor.current = { id: atTop.current ? null : items[first]?.id, within: top - first * height };
    setView((old) => (old.first === first && old.height === shown ? old : { first, height: shown }));
    if (more && first + shown / height > items.length - NEAR_END) onMore();
  };
  const latest = useRef();
  latest.current = placed;
  const moved = () => {
    seen.current.top = box.current.scrollTop;
    placed();
  };
  const scrollTo = (top) => {
    box.current.scrollTop = top;
    seen.current.top = top;
    latest.current();
  };

  useEffect(() => {
    const observer = new ResizeObserver(([{ contentRect }]) => {
      seen.current.height = contentRect.height;
      latest.current();
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  // Rows that arrive above don't move what somebody reads.
  useLayoutEffect(() => {
    const { id, within } = anchor.current;
    const now = id ? items.findIndex((each) => each.id === id) : -1;
    const top = now * height + within;
    if (now >= 0 && Math.abs(top - seen.current.top) > 1) scrollTo(top);
    else placed();
  }, [items]);

  const at = items.findIndex(({ id, steps }) => id === chosen || steps.includes(chosen));
  useLayoutEffect(() => {
    if (at < 0) return;
    const { top, height: shown } = seen.current;
    if (at * height < top) scrollTo(at * height);
    else if ((at + 1) * height > top + shown) scrollTo((at + 1) * height - shown);
  }, [chosen]);

  const from = Math.max(0, view.first - AHEAD);
  const to = Math.min(items.length, view.first + Math.ceil(view.height / height) + AHEAD);
  return html`<div class="live-list" ref=${box} onScroll=${moved}>
    ${cut && html`<p class="live-edge"><${Button} tone="quiet" onClick=${onNewest}>Show the newest answers<//></p>`}
    <ol
      class="rows"
      aria-label="Answers, newest first"
      style=${{ paddingTop: `${from * height}px`, paddingBottom: `${(items.length - to) * height}px` }}
    >
      ${items.slice(from, to).map((item) => html`<${Row} key=${item.id} item=${item} chosen=${item === items[at]} live=${live} />`)}
    </ol>
    ${error && html`<${Note} tone="bad" title="The answers can't be loaded."><p>${error.message}</p><${Button} onClick=${onMore}>Try again<//><//>`}
    ${!error && more && html`<p class="live-edge muted">Loading older answers …</p>`}
  </div>`;
}

function Row({ item, chosen, live }) {
  const { id, at, prompt, text, error, failed, arriving, version, model, agent, caller, rating, rated, commented, reward, unsent, steps, choices, usable } =
    item;
  const classes = `row live-row ${rating == null && usable ? "unrated" : ""} ${arriving ? "arriving" : ""}`;
  return html`<li>
    <a class=${classes} href=${address("live", id)} aria-current=${chosen ? "true" : undefined}>
      <span class="row-head"><strong dir="auto">${prompt || "(no question)"}</strong><${Time} at=${at} /></span>
      <span class="row-text" dir="auto">${text || error || (arriving ? "Waiting for the first words …" : "(no text)")}</span>
      <span class="row-foot">
        ${arriving && html`<${Badge} tone="accent">writing<//>`}
        ${failed && html`<${Badge} tone="bad">failed<//>`}
        <${RatingBadge} rating=${rating} word=${rated} />
        ${commented && html`<${Badge} tone="accent" title="Somebody said in words what should be different">commented<//>`}
        <${RewardBadge} reward=${reward} />
        ${unsent && html`<${Badge} title="The reward model liked another answer to this request better">not sent<//>`}
        <${VersionBadge} version=${version} model=${model} live=${live} />
        ${choices > 1 && html`<${Badge}>${choices} answers<//>`}
        ${steps.length > 0 && html`<${Badge} title="Requests of one task of an agent">${steps.length + 1} steps<//>`}
        <span class="who">${[agent, caller].filter((each) => each && each !== "local").join(" · ")}</span>
      </span>
    </a>
  </li>`;
}
