"""Measure the page in a browser, before a burnish with a large log.

``python -m bench.page.browser [--completions 100000] [--keep FOLDER]``: the first paint, a filter, the tab's memory,
ratings by keyboard, and frames while 2,000 answers a minute stream in. Chromium has no graphics card here, and shares
the cores with burnish and with what asks it.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from playwright.async_api import Page, async_playwright

from bench.log_scale import fill
from bench.page.figures import Figure
from bench.page.load import engine, streams
from burnish.proxy.log import Log
from tests.support.burnish import in_thread, running

ROOT = Path(__file__).parents[2]
SIZE = {"width": 1280, "height": 800}
OPENED = 7
FILTERED = 10
RATED = 40
ANSWERS_S = 2_000 / 60
WATCHED_S = 30.0
MB = 1e6
ROWS = ".live-row"
# From the beginning of every document: when the first row was there, frames, and tasks over 50 ms.
WATCH = """
window.seen = { rows: null, frames: 0, long: [] };
new PerformanceObserver((list) => seen.long.push(...list.getEntries().map(({ duration }) => duration)))
  .observe({ type: "longtask" });
const frame = () => { seen.frames += 1; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
new MutationObserver(() => {
  if (seen.rows === null && document.querySelector(".live-row")) seen.rows = performance.now();
}).observe(document, { childList: true, subtree: true });
"""
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# All rows are good: more than half of those before weren't rated.
CHOOSE = """async (rating) => {
  const began = performance.now();
  const choice = document.querySelector('select[aria-label=Rating]');
  choice.value = rating;
  choice.dispatchEvent(new Event("change", { bubbles: true }));
  const fits = () => {
    const unrated = document.querySelectorAll(".live-row.unrated").length;
    return document.querySelector(".live-row") && (rating === "good" ? !unrated : unrated);
  };
  while (!fits()) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""


def chromium_path() -> str:
    """Return the path of a Chromium, installed if need be; blocks."""
    found = subprocess.run([ROOT / "scripts/browser"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


@asynccontextmanager
async def chromium() -> AsyncIterator[Page]:
    """Open an empty tab."""
    path = await asyncio.to_thread(chromium_path)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        page = await browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        page.set_default_timeout(60_000)
        yield page
        await browser.close()


async def measure(folder: Path, completions: int = 100_000) -> list[Figure]:
    """Fill a log up to a size, and open the page before it."""
    log = Log.open(folder / "burnish.db")
    await fill(log, completions - (await log.counts())["completions"])
    log.close()
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(engine())
        program = running(folder, "--upstream", served.url, "--model", "mock", "--no-train")
        burnish = await stack.enter_async_context(in_thread(program))
        page = await stack.enter_async_context(chromium())
        await page.add_init_script(WATCH)
        return [
            *await _opening(page, burnish.url),
            await _filtering(page),
            await _rating(page),
            *await _streaming(page, burnish.url),
        ]


async def _opening(page: Page, url: str) -> list[Figure]:
    painted, rows = [], []
    for _ in range(OPENED + 1):
        await page.goto("about:blank")
        await page.goto(f"{url}/#/live")
        await page.wait_for_selector(ROWS)
        painted.append(float(await page.evaluate(FIRST_PAINT)))
        rows.append(float(await page.evaluate("seen.rows")))
    return [
        Figure("first paint, first visit", painted[:1], "ms", at_most=300),
        Figure("first paint", painted[1:], "ms", at_most=300),
        Figure("answers are shown, first visit", rows[:1], "ms"),
        Figure("answers are shown", rows[1:], "ms"),
    ]


async def _filtering(page: Page) -> Figure:
    took = []
    for number in range(FILTERED):
        took.append(float(await page.evaluate(CHOOSE, "" if number % 2 else "good")))
    return Figure("a filter, from the choice to the rows", took, "ms", at_most=100)


async def _rating(page: Page) -> Figure:
    """Rate as fast as the next answer is in front."""
    await page.wait_for_selector(".rating-bar")
    began = time.monotonic()
    for number in range(RATED):
        before = page.url
        await page.keyboard.press("gb12345"[number % 7])
        await page.wait_for_function("(before) => location.href !== before", arg=before)
    return Figure("ratings by keyboard", [60 * RATED / (time.monotonic() - began)], "a minute", at_least=120)


async def _streaming(page: Page, url: str) -> list[Figure]:
    # Rating has scrolled the newest answers out of sight.
    await page.locator(".live-list").evaluate("(list) => list.scrollTo(0, 0)")
    async with asyncio.TaskGroup() as group:
        group.create_task(streams(url, ANSWERS_S, WATCHED_S + 5))
        await page.wait_for_selector(f"{ROWS}.arriving")
        await asyncio.sleep(2)
        await page.evaluate("seen.frames = 0; seen.long.length = 0")
        began = time.monotonic()
        await asyncio.sleep(WATCHED_S)
        frames = await page.evaluate("seen.frames") / (time.monotonic() - began)
        long = [float(each) for each in await page.evaluate("seen.long")]
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    await session.send("HeapProfiler.collectGarbage")
    used = {each["name"]: each["value"] for each in (await session.send("Performance.getMetrics"))["metrics"]}
    return [
        Figure("frames, 2,000 answers a minute", [frames], "a second", at_least=20),
        Figure("tasks over 50 ms meanwhile", [len(long)], f"in {WATCHED_S:.0f} s"),
        Figure("the longest of them", [max(long, default=0.0)], "ms", at_most=100),
        Figure("the tab's heap, after that", [used["JSHeapUsedSize"] / MB], "MB", at_most=60),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="where the log is left; filled up if there is one already")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-browser-") as folder:
        found = asyncio.run(measure(given.keep or Path(folder), given.completions))
    for each in found:
        print(each)
    raise SystemExit(not all(each.holds for each in found))


if __name__ == "__main__":
    main()
