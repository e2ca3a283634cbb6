"""What stands around every view: keys, the state of learning, and what happens without JavaScript or burnish."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from burnish.parts.page import events
from tests.learner.test_plan import rated
from tests.page.axe import violations
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


async def test_the_frame_counts_down_to_the_next_lesson(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        events, "STATUS_S", 0.1
    )  # it looks once a second, and there are five looks to wait for
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"the base")
    async with rated(tmp_path, weights, min_comments=4) as burnish:
        await page.goto(str(burnish.http.base_url))
        state = page.get_by_role("banner")
        await expect(state).to_contain_text("Answers from base")
        await expect(state).to_contain_text("4 more comments until it can learn")
        for left in (
            "3 more comments",
            "2 more comments",
            "1 more comment until it can learn",
            "Ready to learn",
        ):
            rating = {
                "completion_id": await asked(burnish.http, f"{left}?"),
                "rating": "bad",
                "comment": "Too long.",
            }
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


async def test_times_are_burnishs_and_not_those_of_a_wrong_clock(
    own_context: BrowserContext, site: Site
) -> None:
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
