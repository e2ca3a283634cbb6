"""The Live view shows what the reward model says, and answers that were imported."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from playwright.async_api import Page, expect

from tests.page.site import site_here
from tests.support.rated import keep_model
from tests.support.upstream import completion, reply


async def test_a_reward_appears_in_the_list_and_beside_the_answer(page: Page, tmp_path: Path) -> None:
    keep_model(tmp_path / "data")
    async with site_here(tmp_path) as site:
        await page.goto(f"{site.url}/#/live")
        name = await site.ask("Green river?", reply(completion("Usually green river.")))
        rows = page.get_by_role("list", name="Answers, newest first").get_by_role("link")
        await expect(rows.first).to_contain_text("reward 0.")
        await page.goto(f"{site.url}/#/live/{name}")
        await expect(page.locator(".live-facts")).to_contain_text("reward 0.")


async def test_an_imported_answer_of_unknown_age_shows_none(page: Page, tmp_path: Path) -> None:
    async with site_here(tmp_path) as site:
        lines = tmp_path / "rows.jsonl"
        asked, said = {"role": "user", "content": "Old?"}, {"role": "assistant", "content": "Very."}
        lines.write_text(json.dumps({"prompt": [asked], "completion": [said], "label": True}))
        command = [sys.executable, "-m", "burnish", "data", "import", str(lines), "--url", site.url]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        await page.goto(f"{site.url}/#/live")
        row = page.get_by_role("list", name="Answers, newest first").get_by_role("link")
        await expect(row).to_contain_text("Very.")
        await expect(row.locator("time")).to_have_count(0)
