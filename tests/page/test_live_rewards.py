"""The Live view shows what the reward model says."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.page.site import site_running
from tests.support.rated import keep_model
from tests.support.upstream import completion, reply


async def test_a_reward_appears_in_the_list_and_beside_the_answer(page: Page, tmp_path: Path) -> None:
    keep_model(tmp_path / "data")
    async with site_running(tmp_path / "data") as site:
        await page.goto(f"{site.url}/#/live")
        name = await site.ask("Green river?", reply(completion("Usually green river.")))
        rows = page.get_by_role("list", name="Answers, newest first").get_by_role("link")
        await expect(rows.first).to_contain_text("reward 0.")
        await page.goto(f"{site.url}/#/live/{name}")
        await expect(page.locator(".live-facts")).to_contain_text("reward 0.")
