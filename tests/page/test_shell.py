"""The frame of the page: who gets it, its files, its navigation and keys."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import BrowserContext, Page, expect

from tests.page.axe import violations
from tests.page.site import Site, site_here


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


async def test_the_page_needs_no_key_and_nothing_else_opens(tmp_path: Path) -> None:
    async with site_here(tmp_path, api_key="secret") as site:
        for path in ("/", "/burnish/page/main.js"):
            assert (await site.client.get(path, headers={"accept": "text/html"})).is_success
        for path in (
            "/burnish/status",
            "/burnish/engine/",
            "/burnish/page/../status",
            "/burnish/page/%2e%2e/status",
        ):
            assert (await site.client.get(path, headers={"accept": "text/html"})).status_code in (
                400,
                401,
                404,
            )


async def test_a_browser_keeps_the_files_until_one_of_them_changes(
    own_context: BrowserContext, site: Site
) -> None:
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
