"""Signing in to the page, and what it shows to whom."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from tests.page.axe import SCHEMES, violations
from tests.page.site import Site, site_here
from tests.support.upstream import events, stream

API, ADMIN = "caller", "root"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A burnish with both keys, and one answer in its log."""
    folder = tmp_path_factory.mktemp("locked")
    async with site_here(folder, model="mock", api_key=API, admin_key=ADMIN, key=API) as site:
        await site.ask("Who may read this?")
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A burnish that everybody on the machine may ask, and its admin only may read."""
    async with site_here(tmp_path_factory.mktemp("shared"), admin_key=ADMIN) as site:
        await site.ask("Who may read this?")
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def context(context: BrowserContext) -> AsyncIterator[BrowserContext]:
    """Forgets who signed in."""
    yield context
    for page in context.pages:
        await page.evaluate("location.origin === 'null' || localStorage.clear()")
    await context.clear_cookies()


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.keyboard.press("Enter")


async def test_a_key_opens_the_view_that_was_asked_for(page: Page, locked: Site) -> None:
    await page.goto(f"{locked.url}/#/health")
    await expect(page.get_by_role("heading", name="Sign in to burnish")).to_be_visible()
    await expect(page.get_by_label("Key", exact=True)).to_be_focused()
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        assert await violations(page) == []
    await sign_in(page, "wrong")
    await expect(page.get_by_role("alert")).to_contain_text("This burnish has another key.")
    assert await violations(page) == []
    await sign_in(page, ADMIN)
    await expect(page.get_by_role("heading", name="Health")).to_be_visible()
    await page.keyboard.press("Shift+L")
    await expect(page.get_by_text("Who may read this?").first).to_be_visible()


async def test_no_script_reads_the_cookie_and_the_key_is_nowhere(page: Page, locked: Site) -> None:
    await page.goto(locked.url)
    await sign_in(page, ADMIN)
    await expect(page.get_by_text("Signed in with the admin key")).to_be_visible()
    stores = ("document.cookie", "JSON.stringify(localStorage)", "JSON.stringify(sessionStorage)")
    kept = await page.evaluate(" + ".join(stores))
    assert "burnish.proof" in kept
    assert "burnish_" not in kept
    cookies = await page.context.cookies()
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]
    assert ADMIN not in kept + str(cookies)


async def test_the_sign_in_holds_and_ends_in_every_tab(context: BrowserContext, locked: Site) -> None:
    first, second = await context.new_page(), await context.new_page()
    await first.goto(locked.url)
    await second.goto(f"{locked.url}/#/health")
    await sign_in(first, ADMIN)
    await expect(second.get_by_role("heading", name="Health")).to_be_visible()
    await first.reload()
    await expect(first.get_by_text("Who may read this?").first).to_be_visible()
    await second.get_by_role("button", name="Sign out").click()
    for page in (first, second):
        await expect(page.get_by_role("heading", name="Sign in to burnish")).to_be_visible()
        await expect(page.get_by_text("Who may read this?")).to_have_count(0)


async def test_the_api_key_doesnt_show_what_others_wrote(page: Page, locked: Site) -> None:
    await page.goto(f"{locked.url}/#/live")
    await sign_in(page, API)
    await expect(page.get_by_text("This view needs the admin key.")).to_be_visible()
    await expect(page.get_by_text("Who may read this?")).to_have_count(0)
    assert await violations(page) == []
    await page.keyboard.press("Shift+H")
    await expect(page.get_by_text("It answers, but it can't learn yet.")).to_be_visible()
    await page.keyboard.press("Shift+L")
    await page.get_by_role("link", name="Sign in with the admin key").click()
    await sign_in(page, ADMIN)
    await expect(page.get_by_text("Who may read this?").first).to_be_visible()


async def test_with_the_api_key_one_can_chat_and_rate(page: Page, locked: Site) -> None:
    locked.scripts["What is oolong?"] = stream(events("A tea between green and black."))
    await page.goto(f"{locked.url}/#/chat")
    await sign_in(page, API)
    await page.get_by_label("Message", exact=True).fill("What is oolong?")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article").last).to_contain_text("between green and black")
    async with page.expect_response("**/v1/feedback") as rated:
        await page.get_by_role("button", name=re.compile("^Good")).last.click()
    answer = await (await rated.value).json()
    assert (answer["reward"], answer["given_with"]) == (1.0, "api_key")
    sent = {name.lower() for request in locked.upstream.requests for name, _ in request.headers}
    assert not sent & {"cookie", "x-burnish-page"}


async def test_an_ended_sign_in_is_told_and_begins_again(page: Page, locked: Site) -> None:
    await page.goto(locked.url)
    await sign_in(page, ADMIN)
    await expect(page.get_by_text("Signed in with the admin key")).to_be_visible()
    await page.goto("about:blank")  # nothing may ask in between: whoever asks first is told
    await page.context.clear_cookies()  # the browser does so after 30 days
    await page.goto(locked.url)
    await expect(page.get_by_text("You are no longer signed in.")).to_be_visible()
    await sign_in(page, ADMIN)
    await expect(page.get_by_text("Who may read this?").first).to_be_visible()


async def test_where_everybody_may_ask_the_admin_signs_in_and_others_go_on(page: Page, shared: Site) -> None:
    await page.goto(f"{shared.url}/#/health")
    await expect(page.get_by_text("It answers, but it can't learn yet.")).to_be_visible()
    await page.keyboard.press("Shift+L")
    await expect(page.get_by_text("This view needs the admin key.")).to_be_visible()
    await page.get_by_role("link", name="Sign in", exact=True).click()
    await page.get_by_role("button", name="Go on without a key").click()
    await expect(page.get_by_text("This view needs the admin key.")).to_be_visible()
    await page.get_by_role("link", name="Sign in", exact=True).click()
    await sign_in(page, ADMIN)
    await expect(page.get_by_text("Who may read this?").first).to_be_visible()
    await page.goto("about:blank")
    await page.context.clear_cookies()
    await page.goto(f"{shared.url}/#/live")
    await page.get_by_role("button", name="Go on without a key").click()
    await expect(page.get_by_text("This view needs the admin key.")).to_be_visible()


async def test_without_keys_there_is_nothing_to_sign_in_to(page: Page, site: Site) -> None:
    await page.goto(f"{site.url}/#/login")
    await expect(page.get_by_role("heading", name="Nobody needs to sign in")).to_be_visible()
    await page.keyboard.press("Shift+H")
    await expect(page.get_by_text("It answers, but it can't learn yet.")).to_be_visible()
    await expect(page.get_by_text("Sign in")).to_have_count(0)


async def test_no_cookie_of_another_server_reaches_the_upstream(context: BrowserContext, site: Site) -> None:
    """A browser sends cookies to every port of a host. Without a sign-in the page sends none."""
    await context.add_cookies([{"name": "others", "value": "secret", "url": site.url}])
    page = await context.new_page()
    async with page.expect_request("**/burnish/status") as asked:
        await page.goto(site.url)
    assert "cookie" not in await (await asked.value).all_headers()
