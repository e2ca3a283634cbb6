"""The Raters view: who rates how, and how often people agree."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.page.axe import violations
from tests.page.site import Site, site_here


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """Two people rated ten answers alike, a third one only one of them, and a fourth one counts twice."""
    weights = {"rater_weights": {"dora": 2.0}}
    async with site_here(tmp_path_factory.mktemp("rated"), train=weights) as site:
        asked = [await site.ask(f"What is number {number}?") for number in range(10)]
        for number, completion in enumerate(asked):
            for rater in ("anna", "bea"):
                await rate(site, completion, "good" if number % 2 else "bad", rater)
        await rate(site, asked[0], "good", "carl")
        await rate(site, await site.ask("Who counts twice?"), "good", "dora")
        yield site


async def rate(site: Site, completion: str, rating: str, rater: str) -> None:
    body = {"completion_id": completion, "rating": rating, "rater": rater}
    (await site.client.post("/v1/feedback", json=body)).raise_for_status()


async def test_each_rater_with_counts_agreement_and_weight(page: Page, rated: Site) -> None:
    await page.goto(f"{rated.url}/#/raters")
    raters = page.get_by_role("list", name="Raters").get_by_role("listitem")
    await expect(raters).to_have_count(4)
    anna, carl, dora = (raters.filter(has_text=name) for name in ("anna", "carl", "dora"))
    await expect(anna).to_contain_text("5 good")
    await expect(anna).to_contain_text("5 bad")
    await expect(anna).to_contain_text("by chance it would be 5")
    await expect(carl).to_contain_text("on 0 of 1 answer. That is too few to tell.")
    await expect(dora).to_contain_text("Nothing to compare")
    await expect(dora).to_contain_text("Counts 2 times as much.")
    await page.set_viewport_size({"width": 320, "height": 640})
    assert await violations(page) == []
    await page.wait_for_function("document.documentElement.scrollWidth <= 320")


async def test_a_rating_appears_by_itself_and_a_hostile_name_is_only_text(page: Page, rated: Site) -> None:
    await page.goto(f"{rated.url}/#/raters")
    await expect(page.get_by_role("heading", name="anna")).to_be_visible()
    await rate(rated, await rated.ask("Who is new here?"), "bad", "<img src=x onerror=alert(1)>")
    await expect(page.get_by_role("heading", name="<img src=x")).to_be_visible()


async def test_before_the_first_rating_it_says_how_to_rate(page: Page, rated: Site) -> None:
    await page.route("**/burnish/raters", lambda route: route.fulfill(json={"object": "list", "data": []}))
    await page.goto(f"{rated.url}/#/raters")
    await expect(page.get_by_text("Nobody has rated or commented on an answer yet.")).to_be_visible()
