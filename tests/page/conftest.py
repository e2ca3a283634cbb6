"""One Chromium and one burnish for all tests of the page, and a browser context of its own for each.

They live in the session's event loop, so every test here runs in it too.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from tests.page.site import Site, site_running

ROOT = Path(__file__).parents[2]
WAIT_MS = 15_000
"""The machine also runs other tests. What works takes milliseconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    found = subprocess.run([ROOT / "scripts/browser", "--find"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("there is no Chromium: run scripts/browser")
    return found.stdout.strip()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(chromium_path: str) -> AsyncIterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A burnish that all tests share: give each question and each user a name of its own."""
    async with site_running(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def context(chromium: Browser) -> AsyncIterator[BrowserContext]:
    """What one user's browser keeps: cookies, tabs. Faults in any of its tabs fail the test."""
    faults: list[str] = []
    context = await chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(WAIT_MS)
    context.on("weberror", lambda fault: faults.append(str(fault.error)))
    context.on("console", lambda message: faults.extend(_faults_in(message)))
    yield context
    await context.close()
    assert not faults


def _faults_in(message: ConsoleMessage) -> list[str]:
    """Return an error of a script or of the content security policy; a refused request is not the page's fault."""
    if message.type != "error" or message.text.startswith("Failed to load resource"):
        return []
    return [message.text]


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    return await context.new_page()
