"""One Chromium and one burnish for all tests of the page, and tabs of its own for each.

They live in the session's event loop, so every test here runs in it too.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from tests.page.learnt import Learnt, learnt_running
from tests.page.site import Site, site_running
from tests.support.fixtures import weights
from tests.support.limits import patient
from tests.support.patience import patience, within
from tests.support.tiny_gguf import random_llama

__all__ = ["patient", "weights"]

ROOT = Path(__file__).parents[2]
WAIT_MS = 1000 * within(30)
"""The machine also runs other tests. What works takes milliseconds."""
# A message goes after some seconds, in which a slow machine may draw it late and look for it seldom.
STAYS_LONGER = f"""{{
  const wait = window.setTimeout;
  window.setTimeout = (run, ms, ...more) => wait(run, ms < 2000 ? ms : ms * {patience()}, ...more);
}}"""


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
        browser = await playwright.chromium.launch(executable_path=chromium_path, timeout=WAIT_MS)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of random weights, for those who want an engine behind burnish."""
    return random_llama(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A burnish that all tests share: give each question and each user a name of its own."""
    async with site_running(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def learnt(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> AsyncIterator[Learnt]:
    async with learnt_running(tmp_path_factory.mktemp("learnt"), tiny_model) as learnt:
        yield learnt


@dataclass
class Kept:
    """What one user's browser keeps: cookies, files, tabs."""

    context: BrowserContext
    faults: list[str] = field(default_factory=list)
    """Of any of its tabs, since they were last looked at."""
    blank: Page | None = None
    """A tab that stays: the first one of a user opens a window, which costs more than any page."""

    async def over(self) -> None:
        """Close the tabs of a test, which fails if there were faults in them."""
        for page in self.context.pages:
            if page is not self.blank:
                await page.close()
        faults, self.faults[:] = self.faults[:], []
        assert not faults


@asynccontextmanager
async def keeping(browser: Browser) -> AsyncIterator[Kept]:
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    kept = Kept(context)
    context.set_default_timeout(WAIT_MS)
    await context.add_init_script(STAYS_LONGER)
    context.on("weberror", lambda fault: kept.faults.append(str(fault.error)))
    context.on("console", lambda message: kept.faults.extend(_faults_in(message)))
    try:
        yield kept
    finally:
        await context.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kept(chromium: Browser) -> AsyncIterator[Kept]:
    async with keeping(chromium) as kept:
        kept.blank = await kept.context.new_page()
        yield kept


@pytest_asyncio.fixture(loop_scope="session")
async def context(kept: Kept) -> AsyncIterator[BrowserContext]:
    """Of a user who was here before: their browser has the files. Nothing of a test may stay in it."""
    yield kept.context
    await kept.over()
    assert not await kept.context.cookies()


@pytest_asyncio.fixture(loop_scope="session")
async def own_context(chromium: Browser) -> AsyncIterator[BrowserContext]:
    """Of a user who was never here, in the browser of this test alone."""
    async with keeping(chromium) as kept:
        yield kept.context
        await kept.over()


def _faults_in(message: ConsoleMessage) -> list[str]:
    """Return an error of a script or of the content security policy; a refused request is not the page's fault."""
    if message.type != "error" or message.text.startswith("Failed to load resource"):
        return []
    return [message.text]


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    return await context.new_page()
