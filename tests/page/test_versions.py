"""The Versions view: a timeline, what each version learnt and changed, and going back and forth between them."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.page.axe import violations
from tests.page.learnt import DOUBTED, QUESTION, Learnt
from tests.support.patience import within

SWAP_MS = 1000 * within(90)
"""The engine starts a process for the version; a busy machine takes its time."""


async def test_the_timeline_shows_every_version_and_its_state(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/versions")
    versions = page.get_by_role("navigation", name="Versions")
    rows = versions.get_by_role("listitem").filter(has=page.get_by_role("link"))
    await expect(rows).to_contain_text(["v3", "v2", "v1", "base"])
    for row, words in (
        (0, "waits for you"),
        (1, "failed the checks"),
        (1, "96 rollouts, mean reward 0.25 · from v1"),
        (2, "answers now"),
        (2, "6 ratings · good and bad answers · from the base model"),
    ):
        await expect(rows.nth(row)).to_contain_text(words)
    await expect(page.get_by_role("heading", name="Who answered, day by day")).to_be_visible()
    await page.keyboard.press("j")
    await expect(page).to_have_url(f"{learnt.url}/#/versions/0")
    await page.keyboard.press("k")
    await page.keyboard.press("ArrowUp")
    await expect(page).to_have_url(f"{learnt.url}/#/versions/2")


async def test_before_and_after_come_from_different_versions(page: Page, learnt: Learnt) -> None:
    for version, before in ((1, 0), (3, 1)):
        await page.goto(f"{learnt.url}/#/versions/{version}")
        pair = page.get_by_role("article").filter(has_text=QUESTION)
        await page.get_by_role("button", name="Show 1 more").click()
        for side, who in (("Before", before), ("After", version)):
            name = f"{side} {'base' if who == 0 else f'v{who}'}"
            shown = pair.locator("section").filter(has=page.get_by_role("heading", name=name))
            await expect(shown).to_contain_text(f"Said by version {who}.")


async def test_a_version_tells_who_taught_it_and_what_the_checks_found(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/versions/1")
    await expect(page.get_by_role("row", name="ann 2 2")).to_be_visible()
    await expect(page.get_by_role("row", name="bob 1 1")).to_be_visible()
    await page.get_by_text("1 answer taught it nothing").click()
    doubted = page.get_by_role("link", name="Doubtful question 0?")
    await expect(doubted).to_contain_text(DOUBTED)
    assert await doubted.get_attribute("href") == f"#/live/{learnt.unlearnt}"
    verdict = page.locator(".verdict")
    await expect(verdict).to_contain_text("It passed the checks: You would like its replies better")
    await expect(verdict.get_by_text("nats per token").first).not_to_be_visible()
    await verdict.get_by_text("Exact figures").click()
    await expect(verdict.get_by_text("nats per token").first).to_be_visible()
    await page.get_by_text("Settings and figures").click()
    assert await violations(page) == []


async def test_a_version_that_failed_is_used_only_after_a_warning(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/versions/2")
    await page.get_by_role("button", name="Use it all the same").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("It failed the checks: Repetitive replies: 12 of 12 (0 before)")
    await expect(dialog).to_contain_text("answered by v2 instead of v1")
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    await expect(dialog).not_to_be_visible()
    assert (await learnt.get("/burnish/adapters"))["live"] == 1


async def test_versions_are_put_to_use_and_undone_with_keys(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/versions/3")
    await expect(page.get_by_role("button", name="Use it")).to_be_visible()
    await page.keyboard.press("u")
    await expect(page.get_by_role("dialog")).to_contain_text("You can go back at any time")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Answers now come from v3.")).to_be_visible(timeout=SWAP_MS)
    await expect(page.get_by_role("dialog")).not_to_be_visible()
    assert await learnt.live() == 3

    await expect(page.get_by_role("button", name="Go back to v1")).to_be_visible()
    await page.keyboard.press("r")
    await expect(page.get_by_role("dialog")).to_contain_text("Go back to v1?")
    await expect(page.get_by_role("dialog")).to_contain_text("Nothing is deleted: v3 stays")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Answers now come from v1.")).to_be_visible(timeout=SWAP_MS)
    assert await learnt.live() == 1


async def test_a_version_that_is_gone_says_so_and_the_view_goes_on(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/versions/9")
    await expect(page.get_by_role("alert")).to_contain_text("no version 9")
    await page.get_by_role("navigation", name="Versions").get_by_role("link", name="v1 answers now").click()
    await expect(page.get_by_role("heading", name="What it learnt from")).to_be_visible()
