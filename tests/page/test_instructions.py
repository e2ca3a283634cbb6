"""The Instructions view: what a user asked for, and how to change it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from tests.page.axe import violations
from tests.page.site import Site, site_here


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site_here(tmp_path_factory.mktemp("told"), instructions=True) as site:
        yield site


async def comment(site: Site, text: str, user: str) -> None:
    completion = await site.ask(f"A question about {text}", user=user)
    body = {"completion_id": completion, "rating": "bad", "comment": text, "rater": user}
    (await site.client.post("/v1/feedback", json=body)).raise_for_status()


async def texts(site: Site, user: str) -> list[str]:
    listed = await site.client.get("/burnish/instructions", headers={"x-burnish-user": user})
    return [each["text"] for each in listed.json()["data"]]


async def test_add_edit_undo_and_remove(page: Page, told: Site) -> None:
    await page.goto(f"{told.url}/#/instructions")
    field = page.get_by_label("Add an instruction")
    await expect(field).to_be_visible()
    await page.keyboard.press("a")
    await expect(field).to_be_focused()
    await page.keyboard.type("Answer in verse.")
    await page.keyboard.press("Enter")
    listed = page.get_by_role("list", name="Instructions").get_by_role("listitem")
    await expect(listed).to_contain_text("Answer in verse.")
    await expect(listed).to_contain_text("Told to the model")
    await expect(field).to_have_value("")

    await page.get_by_role("button", name="Edit: Answer in verse.").click()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Edit: Answer in verse.").click()
    await page.get_by_label("Instruction", exact=True).fill("Answer in prose.")
    await page.keyboard.press("Enter")
    await expect(listed).to_contain_text("Answer in prose.")
    assert await texts(told, "local") == ["Answer in prose."]
    await page.get_by_role("button", name="Undo").click()
    await expect(listed).to_contain_text("Answer in verse.")

    await page.get_by_role("button", name="Remove: Answer in verse.").click()
    await expect(page.get_by_text("There are none yet.")).to_be_visible()
    assert await texts(told, "local") == []


async def test_those_of_another_user_come_from_their_comments(page: Page, told: Site) -> None:
    await comment(told, "too long for me", "erna")
    await page.goto(f"{told.url}/#/instructions")
    await page.get_by_label("Of").select_option("erna")
    listed = page.get_by_role("list", name="Instructions").get_by_role("listitem")
    await expect(listed).to_contain_text("too long for me")
    await expect(listed).to_contain_text("From one comment")
    await page.get_by_text("What the model is told, word for word").click()
    await expect(page.locator("pre")).to_contain_text("too long for me")
    await page.get_by_label("Add an instruction").fill("Shorter for erna.")
    await page.get_by_role("button", name="Add", exact=True).click()
    await expect(listed.filter(has_text="Shorter for erna.")).to_be_visible()
    assert "Shorter for erna." in await texts(told, "erna")
    assert "Shorter for erna." not in await texts(told, "local")
    for width in (1280, 320):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await violations(page) == []
    await page.wait_for_function("document.documentElement.scrollWidth <= 320")


async def refuse_changes(route: Route) -> None:
    await (route.continue_() if route.request.method == "GET" else route.abort())


async def test_a_change_that_fails_says_so_and_can_be_tried_again(page: Page, told: Site) -> None:
    await page.route("**/burnish/instructions", refuse_changes)
    await page.goto(f"{told.url}/#/instructions")
    field = page.get_by_label("Add an instruction")
    await field.fill("Say it once more.")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("That wasn't stored: burnish doesn't answer.")).to_be_visible()
    await expect(field).to_have_value("Say it once more.")
    await page.unroute("**/burnish/instructions")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("list", name="Instructions")).to_contain_text("Say it once more.")


async def test_while_they_are_off_the_page_says_so(page: Page, site: Site) -> None:
    await page.goto(f"{site.url}/#/instructions")
    off = page.get_by_text("Instructions are off, so the model isn't told any of these.")
    await expect(off).to_be_visible()
