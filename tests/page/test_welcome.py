"""The first visit: what to paste, and that the page fills itself."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import BrowserContext, expect

from tests.page.site import site_running


async def test_it_names_the_lines_for_the_agent_here(own_context: BrowserContext, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    codex = home / "bin" / "codex"
    codex.write_text("#!/bin/sh\n")
    codex.chmod(0o755)
    env = {"HOME": str(home), "PATH": f"{home / 'bin'}:{os.defpath}", "XDG_CONFIG_HOME": str(home)}
    async with site_running(tmp_path / "data", env=env) as site:
        await own_context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
        page = await own_context.new_page()
        await page.goto(site.url)
        await expect(page.get_by_label("Lines to paste")).to_contain_text("connect codex")
        await page.get_by_role("button", name="Copy").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        first, second = (await page.evaluate("navigator.clipboard.readText()")).splitlines()
        assert first.endswith("burnish connect codex")
        assert second == "codex"
        await page.get_by_role("button", name="Another program").click()
        await expect(page.get_by_label("Lines to paste")).to_contain_text(f"OPENAI_BASE_URL={site.url}/v1")
        await page.get_by_role("link", name="Talk with the model right here").click()
        await expect(page.get_by_role("heading", name="Chat", level=1)).to_be_visible()
