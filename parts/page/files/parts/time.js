// Times as people say them. Times of burnish are compared with burnish's clock, which may differ from the browser's.
import { html, useEffect, useState } from "../lib.js";
import { state, useStore } from "../store.js";

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const REDRAW_MS = 20_000;

// `at` in seconds since the epoch.
export function ago(at) {
  const passed = (Date.now() + state.clockAhead) / 1000 - at;
  const [unit, size] = UNITS.find(([, each]) => Math.abs(passed) >= each) ?? [null, 1];
  return unit ? relative.format(-Math.round(passed / size), unit) : "just now";
}

const shown = new Set();
setInterval(() => {
  if (!document.hidden) for (const redraw of shown) redraw();
}, REDRAW_MS);

export function Time({ at }) {
  const [, count] = useState(0);
  useStore(({ clockAhead }) => Math.round(clockAhead / 1000));
  useEffect(() => {
    const redraw = () => count((old) => old + 1);
    shown.add(redraw);
    return () => shown.delete(redraw);
  }, []);
  if (!at) return null; // an imported answer may have no time
  const date = new Date(at * 1000);
  return html`<time datetime=${date.toISOString()} title=${exact.format(date)}>${ago(at)}</time>`;
}

// A length of time: "4 s", "3 min", "2 h 5 min".
export function duration(seconds) {
  if (seconds == null) return "unknown";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
