"""The frame of the page: who gets it, its files, its navigation and keys."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.page.axe import violations
from tests.page.site import Site


async def test_a_browser_gets_the_page_and_a_program_what_the_upstream_answers(site: Site) -> None:
    shown = await site.client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert shown.headers["content-type"].startswith("text/html")
    passed_on = await site.client.get("/", headers={"accept": "*/*"})
    assert passed_on.json()["object"] == "chat.completion"


async def test_every_view_opens_by_its_key_and_has_no_accessibility_faults(page: Page, site: Site) -> None:
    await site.ask("Which views are there?")
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.goto(site.url)
        links = page.get_by_role("navigation", name="Views").get_by_role("link")
        await expect(links.first).to_be_visible()
        for link in await links.all():
            key = (await link.locator("kbd").inner_text()).removeprefix("⇧")
            await page.keyboard.press(f"Shift+{key}")
            await expect(link).to_have_attribute("aria-current", "page")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert await violations(page) == []
