"""A first hour in which only the page is used, from an empty home to the first version that goes live.

``python -m bench.page.first_hour [--here] [--seed N] [--out FOLDER]``: starts burnish as ``bench.page.first_minute``
does. Chat asks, ``c`` comments on long answers, ``g`` rates short ones, and Learning is watched. If a version isn't
better enough, the user goes on with as many comments again, three times at most. Prints the minutes, and writes a
screenshot of every view that was used and of every view afterwards. It needs two idle cores.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from bench.first_hour import started
from bench.learning.learn import POLL_S
from bench.page.browser import chromium
from bench.pictures import take
from burnish.parts.desktop.demo.halves import TOO_LONG
from burnish.parts.desktop.demo.questions import QUESTIONS
from tests.support.burnish import in_thread

COMMENTS = 16
ROUNDS = 3
LONG_CHARACTERS = 180
LEARNT_WITHIN_S = 3_600.0
PATIENCE_MS = 90_000
"""After it the user stops the answer, which can't be rated then: a small model sometimes finds no end."""


async def hour(folder: Path, out: Path, *, here: bool, seed: int) -> bool:
    """Use the page until a version is live; returns whether one went live."""
    dice = random.Random(seed)
    questions = dice.sample(QUESTIONS, len(QUESTIONS))
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(chromium())
        began = time.monotonic()
        _, url = await stack.enter_async_context(in_thread(started(folder, here=here)))
        said(began, f"burnish answers at {url}")
        await page.goto(url)
        await page.screenshot(path=out / "0-empty.png")
        await page.get_by_role("link", name="Talk with the model right here").click()
        for round_ in range(1, ROUNDS + 1):
            asked = await comment(page, questions, dice)
            said(began, f"{COMMENTS} comments on {asked} answers")
            await page.screenshot(path=out / f"{round_}-chat.png")
            run = await learnt(page, url, round_)
            said(began, f"a run ended: {run['status']}. {run.get('reason') or ''}")
            await page.screenshot(path=out / f"{round_}-learning.png")
            if run["status"] == "live":
                break
            await page.keyboard.press("Shift+C")
        await asyncio.to_thread(take, url, out)
        return bool(run["status"] == "live")


async def comment(page: Page, questions: list[str], dice: random.Random) -> int:
    """Ask until enough answers were commented on; returns how many were asked."""
    comments, asked = 0, 0
    message = page.get_by_label("Message", exact=True)
    while comments < COMMENTS:
        await page.keyboard.press("Escape")
        await page.keyboard.press("n")
        await message.fill(questions.pop())
        await message.press("Enter")
        answer = page.get_by_role("article")
        try:
            await answer.get_by_role("button", name="Copy").wait_for(timeout=PATIENCE_MS)
        except PlaywrightTimeout:
            await message.press("Escape")
            await answer.get_by_text("Stopped.").wait_for()
            continue
        await message.press("Escape")
        long = len(await answer.inner_text()) > LONG_CHARACTERS
        async with page.expect_response("**/v1/feedback"):
            await page.keyboard.press("c" if long else "g")
            if long:
                await page.keyboard.type(dice.choice(TOO_LONG))
                await page.keyboard.press("Enter")
        asked, comments = asked + 1, comments + long
    return asked


async def learnt(page: Page, url: str, count: int) -> dict[str, Any]:
    """Watch Learning until as many runs have ended; returns the last."""
    await page.keyboard.press("Escape")
    await page.goto(f"{url}/#/learning")
    deadline = time.monotonic() + LEARNT_WITHIN_S
    async with httpx.AsyncClient() as client:
        while time.monotonic() < deadline:
            runs = (await client.get(f"{url}/burnish/runs")).json()["runs"]
            if len(runs) >= count and runs[-1]["ended_at"]:
                await page.wait_for_timeout(1_000)
                return dict(runs[-1])
            await asyncio.sleep(POLL_S)
    raise TimeoutError(f"no run ended within {LEARNT_WITHIN_S:.0f} s")


def said(began: float, what: str) -> None:
    print(f"{(time.monotonic() - began) / 60:4.1f} min: {what}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--here", action="store_true", help="use this installation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the screenshots")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        out = given.out or Path(tempfile.mkdtemp(prefix="first-hour-pictures-"))
        out.mkdir(parents=True, exist_ok=True)
        live = asyncio.run(hour(Path(folder), out, here=given.here, seed=given.seed))
    print(f"screenshots: {out}")
    raise SystemExit(not live)


if __name__ == "__main__":
    main()
