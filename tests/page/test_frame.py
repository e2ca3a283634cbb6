"""The frame of the page: who gets it, its files, keys, the state of learning, and what happens without JavaScript."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from burnish.parts.page import events
from tests.learner.test_plan import rated
from tests.page.axe import SCHEMES, violations
from tests.page.conftest import WAIT_MS
from tests.page.site import Site
from tests.parts.test_duels import asked


async def test_the_help_sheet_names_the_keys_of_the_view_in_front(page: Page, site: Site) -> None:
    await page.goto(f"{site.url}/#/health")
    await expect(page.get_by_role("heading", name="Health", level=1)).to_be_visible()
    await page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    await expect(sheet).to_contain_text("Check again")
    await expect(sheet).to_contain_text("Go to Live")
    assert await violations(page) == []
    await page.keyboard.press("Shift+L")  # below the sheet nothing moves
    await expect(sheet).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(sheet).to_have_count(0)
    await expect(page.get_by_role("heading", name="Health", level=1)).to_be_visible()
    await page.keyboard.press("Shift+L")
    await expect(page.get_by_role("heading", name="Live", level=1)).to_be_visible()


async def test_no_key_works_while_a_modifier_is_held(page: Page, site: Site) -> None:
    await page.goto(f"{site.url}/#/health")
    await expect(page.get_by_role("heading", name="Health", level=1)).to_be_visible()
    for modifier in ("Control", "Meta", "Alt"):
        await page.keyboard.press(f"{modifier}+Shift+L")
    await page.keyboard.press("Shift+L")
    await expect(page.get_by_role("heading", name="Live", level=1)).to_be_visible()
    assert await page.evaluate("history.length") <= 3, "only the last key went to a view"


async def test_the_frame_counts_comments_until_the_next_lesson(
    page: Page, tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STATUS_S", 0.1)  # it looks once a second, and there are five looks
    async with rated(tmp_path, weights, min_comments=4) as burnish:
        await page.goto(str(burnish.http.base_url))
        state = page.get_by_role("banner")
        await expect(state).to_contain_text("Answers from base")
        await expect(state).to_contain_text("0 of 4 comments")
        for left in ("1 of 4 comments", "2 of 4 comments", "3 of 4 comments", "Ready to learn"):
            rating = {"completion_id": await asked(burnish.http, f"{left}?"), "rating": "bad"}
            rating["comment"] = "Too long."
            assert (await burnish.http.post("/v1/feedback", json=rating)).is_success
            await expect(state).to_contain_text(left)


async def test_without_javascript_a_text_names_the_commands(chromium: Browser, site: Site) -> None:
    context = await chromium.new_context(java_script_enabled=False)
    context.set_default_timeout(WAIT_MS)
    page = await context.new_page()
    await page.goto(site.url)
    await expect(page.get_by_text("This page needs JavaScript")).to_be_visible()
    await expect(page.get_by_text('burnish bad "too long"')).to_be_visible()
    await page.get_by_role("link", name="/burnish/status").click()
    await expect(page.get_by_text('"version"')).to_be_visible()
    await context.close()


async def test_times_are_not_those_of_a_wrong_clock(own_context: BrowserContext, site: Site) -> None:
    await site.ask("What time is it?")
    await own_context.clock.install(time=datetime.now(UTC) + timedelta(hours=3))
    page = await own_context.new_page()
    await page.goto(f"{site.url}/#/live")
    # It may have taken a while to get here, but no three hours.
    moment = re.compile(r"^(just now|\d+ min\. ago)$")
    await expect(page.get_by_role("main").locator("time").first).to_have_text(moment)


async def test_no_key_means_two_things_in_any_view(page: Page, site: Site) -> None:
    await site.ask("Which keys are there?")
    await page.goto(site.url)
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    await expect(links.first).to_be_visible()
    for link in await links.all():
        await link.click()
        await expect(link).to_have_attribute("aria-current", "page")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await page.keyboard.press("Escape")  # out of a text field, if the view begins in one
        await page.keyboard.press("?")
        sheet = page.get_by_role("dialog", name="Keys")
        await expect(sheet).to_be_visible()
        keys = await sheet.locator("dl kbd").all_inner_texts()
        assert len(keys) == len(set(keys)), keys
        await page.keyboard.press("Escape")
        await expect(sheet).to_have_count(0)


async def test_on_a_narrow_screen_the_navigation_shows_where_one_is(page: Page, site: Site) -> None:
    await page.set_viewport_size({"width": 320, "height": 640})
    await page.goto(f"{site.url}/#/health")
    await expect(page.get_by_role("link", name="Health")).to_be_in_viewport(ratio=0.9)


async def test_a_browser_gets_the_page_and_a_program_what_the_upstream_answers(site: Site) -> None:
    shown = await site.client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert shown.headers["content-type"].startswith("text/html")
    passed_on = await site.client.get("/", headers={"accept": "*/*"})
    assert passed_on.json()["object"] == "chat.completion"


async def test_every_view_opens_by_its_key_and_has_no_accessibility_faults(page: Page, site: Site) -> None:
    await site.ask("Which views are there?")
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        await page.goto(site.url)
        links = page.get_by_role("navigation", name="Views").get_by_role("link")
        await expect(links.first).to_be_visible()
        for link in await links.all():
            key = (await link.locator("kbd").inner_text()).removeprefix("⇧")
            await page.keyboard.press(f"Shift+{key}")
            await expect(link).to_have_attribute("aria-current", "page")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert await violations(page) == []
            assert await cut_off(page) == []


async def cut_off(page: Page) -> list[str]:
    """Return what is wider than the page, on the narrowest and the widest screen."""
    found = []
    for width in (320, 3840):
        await page.set_viewport_size({"width": width, "height": 800})
        found += await page.evaluate(
            """() => [document.documentElement, document.getElementById("main")]
                .filter((part) => part.scrollWidth > part.clientWidth)
                .map((part) => `${part.tagName} ${part.scrollWidth} > ${part.clientWidth} of ${innerWidth}`)"""
        )
    await page.set_viewport_size({"width": 1280, "height": 800})
    return found


async def test_the_engines_page_is_below_a_path_of_its_own(site: Site) -> None:
    before = len(site.upstream.requests)
    for path in ("/burnish/engine/", "/burnish/engine/assets/app.js?v=1"):
        sent = await site.client.get(path, headers={"accept": "text/html"}, follow_redirects=True)
        assert sent.is_success
        assert sent.url.port != site.client.base_url.port
    assert [each.target for each in site.upstream.requests[before:]] == ["/", "/assets/app.js?v=1"]
    sent = await site.client.get("/burnish/engine")
    assert sent.headers["location"] == "/burnish/engine/"
    # It manages the engine, under this path too.
    assert (await site.client.post("/burnish/engine/load_lora_adapter", json={})).status_code == 403


async def test_a_browser_keeps_the_files(own_context: BrowserContext, site: Site) -> None:
    page = await own_context.new_page()
    await page.goto(site.url)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await page.goto("about:blank")
    await page.goto(site.url)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    loaded = await page.evaluate(
        """() => performance.getEntriesByType("resource")
            .filter(({ name, transferSize }) => name.includes("/burnish/page/") && transferSize > 0)
            .map(({ name }) => name.replace(/.*[/]page[/]/, ""))"""
    )
    assert loaded == []


async def test_a_tab_from_before_an_upgrade_still_gets_files(site: Site) -> None:
    old = await site.client.get(f"/burnish/page/{'0' * 16}/views/health.js")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    assert (await site.client.get("/burnish/page/vendor/LICENSE-htm")).status_code == 404
