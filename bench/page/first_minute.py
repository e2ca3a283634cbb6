"""How long does it take from ``scripts/up`` to an answer that was rated in the page?

``python -m bench.page.first_minute [--here]``: as ``bench.first_hour`` starts burnish, from a clone in an empty home.
After that only the page is used: Chat asks, and a key rates. ``--here`` skips the installation and uses this one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.first_hour import started
from bench.page.browser import chromium
from bench.page.figures import Figure
from tests.support.burnish import in_thread

LIMIT_S = 60.0


async def measure(folder: Path, *, here: bool = False) -> Figure:
    """Start, ask and rate; returns seconds. Raises if no rating was stored."""
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(chromium())
        began = time.monotonic()
        _, url = await stack.enter_async_context(in_thread(started(folder, here=here)))
        await page.goto(url)
        await page.get_by_role("link", name="Talk with the model right here").click()
        message = page.get_by_label("Message", exact=True)
        await message.fill("Why is the sky blue?")
        await message.press("Enter")
        await page.get_by_role("article").get_by_role("button", name="Copy").wait_for()
        await message.press("Escape")
        async with page.expect_response("**/v1/feedback") as rated:
            await page.keyboard.press("g")
        record = await (await rated.value).json()
        took = time.monotonic() - began
        assert record["reward"] == 1.0, record
    name = "installed already: start" if here else "scripts/up in a fresh clone"
    return Figure(f"{name} to a rated answer", [took], "s", at_most=LIMIT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="use this installation")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-minute-") as folder:
        found = asyncio.run(measure(Path(folder), here=given.here))
    print(found)
    raise SystemExit(not found.holds)


if __name__ == "__main__":
    main()
