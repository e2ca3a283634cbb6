"""The Live view while answers arrive, other tabs rate, rewards and imports come, users are erased."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from playwright.async_api import BrowserContext, Page, expect

from tests.page.site import Site, site_here
from tests.page.test_live import conversation, in_front, read, rows
from tests.support.program import said
from tests.support.rated import keep_model
from tests.support.upstream import completion, events, reply, stream


async def test_an_answer_is_shown_while_it_is_written_and_rated_when_it_ends(page: Page, site: Site) -> None:
    await site.ask("Before the streamed one?")
    await read(page, site)
    ended = asyncio.Event()
    row, good = rows(page).filter(has_text="Streamed?"), page.get_by_role("button", name="Good g")
    async with asyncio.TaskGroup() as tasks:
        words = stream(events("Words come one by one."), hold=ended)
        asking = tasks.create_task(site.ask("Streamed?", words, stream=True))
        await expect(row).to_contain_text("writing")
        await expect(row).to_contain_text("Words come one by one.")
        await row.click()
        await expect(conversation(page)).to_contain_text("Words come one by one.")
        await expect(good).to_be_disabled()
        await expect(page.get_by_text("You can rate it when it is written.")).to_be_visible()
        await page.keyboard.press("g")
        ended.set()
    completion_id = asking.result()
    await in_front(page, completion_id)
    await expect(good).to_be_enabled()
    await expect(row).not_to_contain_text("writing")
    found = await site.client.get("/v1/feedback", params={"completion_id": completion_id})
    assert found.json()["data"] == [], "the key did nothing before the answer was there"
    await page.keyboard.press("g")
    await expect(row).to_contain_text("good")


async def test_a_rating_in_one_tab_is_seen_in_the_other(context: BrowserContext, site: Site) -> None:
    completion_id = await site.ask("Seen in two tabs?")
    one, other = await context.new_page(), await context.new_page()
    await read(one, site, completion_id)
    await read(other, site, completion_id)
    await one.keyboard.press("2")
    for page in (one, other):
        await expect(rows(page).filter(has_text="Seen in two tabs?")).to_contain_text("2 of 5 (Poor)")
    await expect(conversation(other)).to_contain_text("What was said of it")
    await conversation(other).get_by_role("button", name="Take back").click()
    for page in (one, other):
        await expect(rows(page).filter(has_text="Seen in two tabs?")).not_to_contain_text("of 5")


async def test_an_answer_that_is_erased_while_it_is_read(page: Page, site: Site) -> None:
    await site.ask("Something older?")
    completion_id = await site.ask("Will this vanish?", user="eve")
    await site.ask("Something that stays?")
    await read(page, site, completion_id)
    await expect(conversation(page)).to_contain_text("Fine.")
    assert (await site.client.delete("/burnish/users/eve")).is_success
    await expect(conversation(page)).to_contain_text("This answer isn't in the log.")
    await expect(rows(page).filter(has_text="Will this vanish?")).to_have_count(0)
    await page.keyboard.press("j")
    await expect(conversation(page)).to_contain_text("Fine.")


async def test_what_somebody_reads_stays_where_it_is_while_answers_arrive(page: Page, site: Site) -> None:
    for number in range(40):
        await site.ask(f"Steady {number}?")
    await read(page, site)
    # The page chooses an answer by itself, and scrolls to it.
    await expect(rows(page).and_(page.locator("[aria-current=true]"))).to_be_visible()
    box = page.locator(".live-list")
    await box.evaluate("(list) => list.scrollTo(0, 900)")
    row = rows(page).filter(has_text="Steady 25?")
    await expect(row).to_be_visible()
    before = await row.bounding_box()
    newest = await site.ask("Newer than steady?")
    await page.wait_for_function("() => document.querySelector('.live-list').scrollTop > 950")
    assert await row.bounding_box() == before
    await page.goto(f"{site.url}/#/live/{newest}")
    await expect(rows(page).filter(has_text="Newer than steady?")).to_be_visible()


async def test_without_the_stream_the_page_says_so_and_catches_up_later(page: Page, site: Site) -> None:
    stream_of_events = re.compile("/burnish/events")
    await page.route(stream_of_events, lambda route: route.abort())
    await site.ask("Before the stream?")
    await read(page, site)
    await expect(page.get_by_text("Connection lost, trying again")).to_be_visible()
    await site.ask("While it is cut?")
    await page.unroute(stream_of_events)
    await expect(rows(page).filter(has_text="While it is cut?")).to_be_visible()
    await expect(page.get_by_text("Connected")).to_be_visible()


async def test_the_first_answer_fills_an_empty_page(page: Page, tmp_path: Path) -> None:
    async with site_here(tmp_path) as empty:
        await page.goto(empty.url)
        await expect(page.get_by_text("Connected")).to_be_visible()
        await expect(rows(page)).to_have_count(0)
        completion_id = await empty.ask("The very first?")
        await expect(rows(page)).to_have_count(1)
        await in_front(page, completion_id)


async def test_a_reward_appears_in_the_list_and_beside_the_answer(page: Page, tmp_path: Path) -> None:
    keep_model(tmp_path / "data")
    async with site_here(tmp_path) as site:
        await page.goto(f"{site.url}/#/live")
        name = await site.ask("Green river?", reply(completion("Usually green river.")))
        await expect(rows(page).first).to_contain_text("reward 0.")
        await page.goto(f"{site.url}/#/live/{name}")
        await expect(page.locator(".live-facts")).to_contain_text("reward 0.")


async def test_an_imported_answer_of_unknown_age_shows_none(page: Page, tmp_path: Path) -> None:
    async with site_here(tmp_path) as site:
        lines = tmp_path / "rows.jsonl"
        lines.write_text(json.dumps({"prompt": "Old?", "completion": "Very.", "label": True}))
        await asyncio.to_thread(said, "data", "import", str(lines), url=site.url)
        await page.goto(f"{site.url}/#/live")
        await expect(rows(page)).to_contain_text("Very.")
        await expect(rows(page).locator("time")).to_have_count(0)
