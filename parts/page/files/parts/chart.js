// A line over the steps of a run, drawn by uPlot. The library is loaded when the first chart is shown.
import { html, useEffect, useRef, useState } from "../lib.js";

const vendored = (name) => new URL(`../vendor/${name}`, import.meta.url).pathname;
const HEIGHT = 120;
let loading;

function library() {
  loading ??= new Promise((done, fail) => {
    const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: vendored("uplot.css") });
    const script = Object.assign(document.createElement("script"), { src: vendored("uplot.js") });
    script.onload = () => done(/** @type {any} */ (window).uPlot);
    script.onerror = () => fail(new Error("the chart library couldn't be loaded"));
    document.head.append(style, script);
  });
  return loading;
}

// A negative zero is 0.
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const figure = (value) => number.format(Math.round(value * 1000) / 1000 + 0);
const dark = matchMedia("(prefers-color-scheme: dark)");

// `x`, `y`: numbers, a gap in `y` is null. `says`: what the chart means, in one line.
export function Chart({ title, says, x, y }) {
  const canvas = useRef();
  const plot = useRef();
  const [fault, setFault] = useState(null);
  const [redrawn, redraw] = useState(0);
  useEffect(() => {
    let wanted = true;
    library().then((uPlot) => {
      if (!wanted) return;
      plot.current = new uPlot(options(canvas.current), [x, y], canvas.current);
    }, setFault);
    const resized = new ResizeObserver(([{ contentRect }]) => plot.current?.setSize({ width: contentRect.width, height: HEIGHT }));
    resized.observe(canvas.current);
    const turned = () => redraw((count) => count + 1);
    dark.addEventListener("change", turned);
    return () => {
      wanted = false;
      resized.disconnect();
      dark.removeEventListener("change", turned);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [redrawn]);
  useEffect(() => plot.current?.setData([x, y]), [x, y]);
  const known = y.filter((value) => value !== null);
  const range = known.length ? `from ${figure(known[0])} to ${figure(known.at(-1))}` : "nothing yet";
  return html`<figure class="chart">
    <figcaption><strong>${title}</strong><span class="num">${range}</span></figcaption>
    <div ref=${canvas} role="img" aria-label=${`${title}: ${range}. ${says}`} />
    <p class="muted small">${fault ? fault.message : says}</p>
  </figure>`;
}

function options(element) {
  const colour = (name) => getComputedStyle(element).getPropertyValue(name).trim();
  const axis = { stroke: colour("--soft"), font: `11px ${colour("--sans")}`, ticks: { show: false }, gap: 4 };
  const grid = { stroke: colour("--line"), width: 1 };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 8, 0, 0],
    scales: { x: { time: false } },
    axes: [
      { ...axis, grid: { show: false }, size: 22, space: 60, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick : "")) },
      { ...axis, grid, size: 46, space: 32, values: (_, ticks) => ticks.map((tick) => figure(tick)) },
    ],
    series: [{}, { stroke: colour("--accent"), width: 1.75, points: { show: false }, spanGaps: true }],
  };
}
