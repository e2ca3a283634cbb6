"""The Health view: it says what is wrong, and what the doctor finds."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.page.site import Site, site_running


async def test_it_shows_what_burnish_doctor_finds_and_c_checks_again(page: Page, site: Site) -> None:
    async with page.expect_response("**/burnish/doctor") as response:
        await page.goto(f"{site.url}/#/health")
    found = (await (await response.value).json())["findings"]
    checks = page.get_by_role("listitem")
    await expect(checks).to_have_count(len(found))
    # The scripted upstream lists no models. What needs attention comes first.
    await expect(checks.first).to_contain_text("Warning: Upstream")
    await expect(checks.first).to_contain_text("check the URL")
    async with page.expect_request("**/burnish/doctor"):
        await page.keyboard.press("c")


async def test_it_shows_figures_and_goes_on_when_burnish_is_back(page: Page, tmp_path: Path) -> None:
    async with site_running(tmp_path) as site:
        for question in ("One?", "Two?"):
            await site.ask(question)
        await page.goto(f"{site.url}/#/health")
        figures = page.get_by_role("region", name="Figures")
        await expect(figures).to_contain_text("2answers are stored, 0 rated and 0 commented")
        await expect(page.get_by_role("main")).to_contain_text("It answers, but it can't learn yet.")
        await expect(page.get_by_role("button", name="Check again")).to_be_enabled()
    await expect(page.get_by_text("Connection lost, trying again")).to_be_visible()
    await page.keyboard.press("c")
    await expect(page.get_by_role("alert")).to_contain_text("burnish doesn't answer. Is it still running?")
    async with site_running(tmp_path, "--port", site.url.rpartition(":")[2]) as again:
        await expect(page.get_by_text("Connected")).to_be_visible()
        await again.ask("Three?")
        await expect(figures).to_contain_text("3answers are stored")
