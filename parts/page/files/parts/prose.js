// An answer of a model with its lists, tables and code, and a switch that shows it as it was written.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { Button } from "./button.js";
import { Text } from "./text.js";

const LIMIT = 20_000; // characters; longer texts are shown as they are
const MARKED = /[*_`~#|>[\]<&\\]|https?:|@|^[ \t]*(?:[-+]|\d+[.)])[ \t]|^[ \t]*[-=]{2}|^ {4}| {2}$/m;
const SLOW_MS = 50; // an answer that takes longer is shown as it is while it is written

/** @type {Promise<any>} */
let loading;
/** @type {null | ((text: string, live: boolean) => any[])} */
let reader = null;

// Only who gets Markdown loads what reads it.
function useReader(wanted) {
  const [, redraw] = useState(false);
  useEffect(() => {
    if (!wanted || reader) return;
    loading ??= import("./markdown.js");
    loading.then(
      (loaded) => {
        reader = loaded.nodesOf;
        redraw(true);
      },
      () => {}, // the text is shown as it is
    );
  }, [wanted]);
  return wanted ? reader : null;
}

// `live`: it is still being written.
export function Prose({ children, live = false }) {
  const text = String(children ?? "");
  const marked = text.length <= LIMIT && MARKED.test(text);
  const read = useReader(marked);
  const slow = useRef(false);
  const [written, setWritten] = useState(false);
  const nodes = useMemo(() => (read && !(live && slow.current) ? nodesOf(read, text, live, slow) : null), [read, text, live]);
  return html`${nodes && !written ? html`<div class="text prose" dir="auto">${nodes}</div>` : html`<${Text} fold=${live ? 0 : undefined}>${live ? text.slice(-LIMIT) : text}<//>`}
    ${nodes && !live && html`<div><${Button} tone="quiet" class="as-written" pressed=${written} onClick=${() => setWritten(!written)}>As written<//></div>`}`;
}

function nodesOf(read, text, live, slow) {
  const began = performance.now();
  try {
    return read(text, live);
  } catch {
    return null; // nested so deeply that no stack holds it
  } finally {
    slow.current = performance.now() - began > SLOW_MS;
  }
}
