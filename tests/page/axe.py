"""Accessibility, by axe-core."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import axe_playwright_python
from playwright.async_api import Page

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SCRIPT = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """Return what axe-core finds on a page as it is now, a line each."""
    if await page.evaluate("typeof axe === 'undefined'"):
        await page.evaluate(SCRIPT)
    # All rules, but what follows them is only told of those that fail.
    found = await page.evaluate('async () => (await axe.run({ resultTypes: ["violations"] })).violations')
    faults = [(each["id"], node) for each in found for node in each["nodes"]]
    return [f"{rule}: {node['html'][:200]} – {node['failureSummary']}" for rule, node in faults]
