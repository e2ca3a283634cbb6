"""Accessibility, by axe-core."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
from playwright.async_api import Page

SCRIPT = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """Return what axe-core finds on a page as it is now, a line each."""
    await page.evaluate(SCRIPT)
    found = await page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']}: {node['html'][:200]} – {node['failureSummary']}"
        for each in found
        for node in each["nodes"]
    ]
