"""The Live view: read answers, and rate them with keys."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson
import pytest
from playwright.async_api import BrowserContext, Locator, Page, Route, expect

from tests.page.axe import SCHEMES, violations
from tests.page.site import Site
from tests.support.chat_wire import called, whole
from tests.support.upstream import completion, reply

RATINGS = {
    "g": (1.0, "binary", "Rated good"),
    "b": (-1.0, "binary", "Rated bad"),
    "1": (-1.0, "likert", "Rated 1 of 5 (Terrible)"),
    "2": (-0.5, "likert", "Rated 2 of 5 (Poor)"),
    "3": (0.0, "likert", "Rated 3 of 5 (Okay)"),
    "4": (0.5, "likert", "Rated 4 of 5 (Good)"),
    "5": (1.0, "likert", "Rated 5 of 5 (Excellent)"),
}
PRESSED = {*RATINGS, "c", "f", "u", "j", "k", "n", "/", "Space", "Esc", "←", "→"}
"""Keys that a test below presses, as the help sheet writes them."""


async def read(page: Page, site: Site, completion_id: str = "") -> None:
    """Open the view, with this answer in front."""
    await page.goto(f"{site.url}/#/live/{completion_id}".rstrip("/"))
    await expect(rows(page).first).to_be_visible()


def rows(page: Page) -> Locator:
    return page.get_by_role("list", name="Answers, newest first").get_by_role("link")


def conversation(page: Page) -> Locator:
    return page.get_by_role("group", name="Conversation")


def message(page: Page) -> Locator:
    """The latest message at the edge of the page."""
    return page.locator(".toast").last


async def in_front(page: Page, completion_id: str) -> None:
    await expect(page).to_have_url(re.compile(re.escape(completion_id)))


async def said_of(site: Site, completion_id: str) -> list[dict[str, Any]]:
    """Return what counts of an answer's feedback, earliest first."""
    found = (await site.client.get("/v1/feedback", params={"completion_id": completion_id})).json()["data"]
    return [each for each in reversed(found) if each["undone_at"] is None]


async def test_each_key_rates_and_the_next_unrated_answer_is_in_front(page: Page, site: Site) -> None:
    ids = [await site.ask(f"Rated with {key}?") for key in [*RATINGS, "nothing"]]
    await read(page, site, ids[-1])
    await page.keyboard.press("j")
    for key, completion_id in zip(reversed(RATINGS), ids[-2::-1], strict=True):
        await in_front(page, completion_id)
        await page.keyboard.press(key)
        await expect(message(page)).to_contain_text(RATINGS[key][2])
    for (reward, scale, _), completion_id in zip(RATINGS.values(), ids, strict=False):
        (given,) = await said_of(site, completion_id)
        assert (given["reward"], given["scale"], given["scope"]) == (reward, scale, "turn")
    assert await said_of(site, ids[-1]) == []


async def test_what_was_said_last_is_taken_back(page: Page, site: Site) -> None:
    older, newer = [await site.ask(f"Taken back, {which}?") for which in ("older", "newer")]
    await read(page, site, newer)
    await page.keyboard.press("b")
    await in_front(page, older)
    await expect(message(page)).to_contain_text("newer")
    await page.keyboard.press("4")
    await expect(message(page)).to_contain_text("older")
    await page.keyboard.press("u")
    await in_front(page, older)
    await expect(message(page)).to_contain_text("Taken back: “Taken back, older?”")
    await page.keyboard.press("u")
    await in_front(page, newer)
    await expect(message(page)).to_contain_text("Taken back: “Taken back, newer?”")
    assert await said_of(site, newer) == await said_of(site, older) == []
    await page.keyboard.press("u")
    await expect(message(page)).to_contain_text("Nothing to take back")


async def test_a_comment_alone_and_with_a_rating(page: Page, site: Site) -> None:
    older, newer = [await site.ask(f"Commented, {which}?") for which in ("older", "newer")]
    await read(page, site, newer)
    await page.keyboard.press("c")
    field = page.get_by_label("What should be different?")
    await expect(field).to_be_focused()
    await page.keyboard.type("good, but long")
    await page.keyboard.press("Escape")
    await expect(field).to_be_hidden()
    await page.keyboard.press("c")
    await expect(field).to_have_value("good, but long")
    await page.keyboard.press("Enter")
    await expect(message(page)).to_contain_text("Comment")
    (given,) = await said_of(site, newer)
    assert (given["reward"], given["comment"]) == (None, "good, but long")
    await in_front(page, older)
    await page.keyboard.press("k")
    await in_front(page, newer)
    await page.keyboard.press("c")
    await field.fill("too long")
    await page.get_by_role("button", name="Rate it bad, too").click()
    await page.get_by_role("button", name="Save").click()
    await in_front(page, older)
    await expect(message(page)).to_contain_text("Rated bad, with comment")
    last = (await said_of(site, newer))[-1]
    assert (last["reward"], last["comment"]) == (-1.0, "too long")


async def test_who_only_comments_gets_from_answer_to_answer(page: Page, site: Site) -> None:
    ids = [await site.ask(f"Only commented, {number}?") for number in range(4)]
    await read(page, site, ids[-1])
    for number in reversed(range(4)):
        await in_front(page, ids[number])
        await page.keyboard.press("c")
        await page.keyboard.insert_text("too long")
        await page.keyboard.press("Enter")
        await expect(message(page)).to_contain_text(f"Only commented, {number}?")
        row = page.get_by_role("listitem").filter(has_text=f"Only commented, {number}?")
        await expect(row.get_by_text("commented", exact=True)).to_be_visible()
    for completion_id in ids:
        assert [each["comment"] for each in await said_of(site, completion_id)] == ["too long"]


async def test_a_key_never_rates_an_answer_that_a_filter_left_out(page: Page, site: Site) -> None:
    bees, colour = [await site.ask(f"Left out, {what}?") for what in ("bees", "colour")]
    await site.client.post("/v1/feedback", json={"completion_id": bees, "comment": "no bees"})
    search, rating = page.get_by_role("searchbox"), page.get_by_label("Rating", exact=True)
    for choose, back in (
        (search.fill("left out, bees"), search.press("Escape")),
        (rating.select_option("commented"), page.get_by_role("heading", name="Live").click()),
    ):
        await read(page, site, colour)
        await expect(conversation(page)).to_contain_text("colour")
        await choose
        await expect(rows(page).first).to_contain_text("bees")
        await in_front(page, bees)
        await back
        await page.keyboard.press("g")
        await expect(message(page)).to_contain_text("Rated good: “Left out, bees?”")
        await page.goto("about:blank")
    assert await said_of(site, colour) == []


@pytest.mark.parametrize("key", ["g", "3", "c", "f"])
async def test_without_a_hit_there_is_nothing_to_rate(page: Page, site: Site, key: str) -> None:
    completion_id = await site.ask(f"Without a hit for {key}?")
    await read(page, site, completion_id)
    search = page.get_by_role("searchbox")
    await search.fill("no answer has these words")
    await expect(page.get_by_text("No answer fits these filters.")).to_be_visible()
    await expect(conversation(page)).to_be_hidden()
    await search.press("Escape")
    await page.keyboard.press(key)
    await expect(page.locator(".live-editor")).to_be_hidden()
    await page.get_by_role("button", name="Show all answers").click()
    await expect(conversation(page)).to_be_visible()
    assert await said_of(site, completion_id) == []


async def test_a_reply_is_changed_into_what_was_wanted(page: Page, site: Site) -> None:
    completion_id = await site.ask("Capital of France?", "It might be Lyon.")
    await read(page, site, completion_id)
    await expect(conversation(page)).to_contain_text("Lyon")
    await page.keyboard.press("f")
    field = page.get_by_label("Change the reply into what you wanted")
    await expect(field).to_have_value("It might be Lyon.")
    await field.fill("It is Paris.")
    await page.keyboard.press("Control+Enter")
    await expect(message(page)).to_contain_text("Your version")
    assert [each["correction"] for each in await said_of(site, completion_id)] == ["It is Paris."]


async def test_moving_reading_searching(page: Page, site: Site) -> None:
    older = await site.ask("Moved, older?", "A long story. " * 1000)
    middle = await site.ask("Moved, middle?")
    newer = await site.ask("Moved, newer?")
    await site.client.post("/v1/feedback", json={"completion_id": middle, "rating": "good"})
    await read(page, site, newer)
    for key, expected in (("j", middle), ("k", newer), ("n", older)):
        await page.keyboard.press(key)
        await in_front(page, expected)
    await expect(conversation(page)).to_contain_text("A long story.")
    assert await conversation(page).evaluate("(box) => box.scrollTop") < 200
    await page.keyboard.press(" ")
    await page.wait_for_function("document.querySelector('.live-read').scrollTop > 200")
    await page.keyboard.press("/")
    search = page.get_by_role("searchbox")
    await expect(search).to_be_focused()
    await page.keyboard.insert_text("moved, MIDDLE")  # who pauses between letters searches more than once
    await expect(rows(page)).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(search).not_to_be_focused()
    await page.keyboard.press("Escape")
    await expect(rows(page).nth(2)).to_be_visible()


async def test_the_keys_of_the_sheet_are_those_that_are_tested(page: Page, site: Site) -> None:
    scripted = {"choices": [{"index": n, "message": {"content": f"Tea {n}."}} for n in range(2)]}
    several = await site.ask("Several?", reply(completion_of(scripted)), n=2)
    await read(page, site, several)
    await expect(conversation(page)).to_contain_text("Tea 0.")
    await page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    await expect(sheet).to_be_visible()
    of_answers = page.get_by_role("heading", name=re.compile("answer", re.IGNORECASE))
    groups = sheet.locator("section", has=of_answers)
    assert set(await groups.locator("kbd").all_inner_texts()) == PRESSED
    await page.keyboard.press("Escape")
    await expect(sheet).to_be_hidden()


def completion_of(more: dict[str, Any]) -> bytes:
    return orjson.dumps(orjson.loads(completion()) | more)


async def test_each_of_several_answers_is_rated_for_itself(page: Page, site: Site) -> None:
    scripted = {"choices": [{"index": n, "message": {"content": f"Answer number {n}."}} for n in range(3)]}
    completion_id = await site.ask("Which of three?", reply(completion_of(scripted)), n=3)
    await read(page, site, completion_id)
    await expect(conversation(page)).to_contain_text("Answer number 0.")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    await expect(conversation(page)).to_contain_text("Answer number 2.")
    await page.keyboard.press("ArrowLeft")
    await expect(conversation(page)).to_contain_text("Answer number 1.")
    await page.keyboard.press("b")
    await expect(message(page)).to_contain_text("Rated bad")
    (given,) = await said_of(site, completion_id)
    assert (given["choice"], given["reward"], given["scope"]) == (1, -1.0, "completion")


async def test_a_rating_that_fails_says_so_and_can_be_tried_again(page: Page, site: Site) -> None:
    completion_id = await site.ask("Does a failed rating get lost?")
    # Before the page is loaded: a request right after a new route may pass it by.
    await page.route("**/v1/feedback", lambda route: route.abort())
    await read(page, site, completion_id)
    await expect(conversation(page)).to_contain_text("Fine.")
    await page.keyboard.press("g")
    await expect(message(page)).to_contain_text("Not saved – Rated good: “Does a failed rating get lost?”")
    assert await said_of(site, completion_id) == []
    await page.unroute("**/v1/feedback")
    await page.get_by_role("button", name="Try again").click()
    await expect(message(page)).not_to_contain_text("Not saved")
    await expect(message(page)).to_contain_text("Rated good")
    assert len(await said_of(site, completion_id)) == 1


BREAKS = "document.title='broken'"
HOSTILE = {
    "a script": (f"<script>{BREAKS}</script><img src=x onerror={BREAKS}>", "<script>"),
    "an ANSI sequence": ("\x1b[31mred\x1b[0m", "[31mred"),
    "turned text": ("\u202egnirts\u202c", "⟨U+202E⟩"),
    "a line of a megabyte": ("x" * 1_000_000, "xxxx"),
    "nested marks": ("> " * 5000 + "```" * 2000, "> > >"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_text_is_shown_as_text(page: Page, site: Site, name: str) -> None:
    text, shown = HOSTILE[name]
    completion_id = await site.ask(f"{text[:300]} {name}", text)
    await read(page, site, completion_id)
    await expect(conversation(page)).to_contain_text(shown)
    await expect(page).to_have_title("Live · burnish")
    assert await conversation(page).locator("script, img").count() == 0
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


async def test_ten_thousand_tool_calls_are_folded(page: Page, site: Site) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Do everything."}]
    for number in range(10_000):
        call = called(f"tool_{number % 3}", {}, f"call_{number}")
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number}"})
    history.append({"role": "user", "content": "Is everything done?"})
    done = await site.ask("Is everything done?", messages=history)
    await read(page, site, done)
    fold = conversation(page).locator("summary", has_text="10,000 tool calls")
    await fold.click()
    await expect(conversation(page).locator("summary", has_text="tool_0")).to_have_count(17)
    await conversation(page).locator("summary", has_text="tool_1").first.click()
    await expect(conversation(page)).to_contain_text("result 1")
    await page.get_by_role("button", name="Show 50 of 9,950 more calls").click()
    await expect(conversation(page).locator("summary", has_text="tool_0")).to_have_count(34)


async def test_an_agents_steps_are_one_row(page: Page, site: Site) -> None:
    call = called("look", {"path": "a.md"}, "call_9")
    asks = {"role": "user", "content": "Look into the folder of one row."}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    first = await site.ask(asks["content"], reply(orjson.dumps(whole(calling))), messages=[asks])
    found = {"role": "tool", "tool_call_id": "call_9", "content": "a file"}
    last = await site.ask("a file", "There is a file.", messages=[asks, calling, found])
    await read(page, site, last)
    row = rows(page).filter(has_text="Look into the folder of one row.")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("2 steps")
    await page.keyboard.press("b")
    await expect(message(page)).to_contain_text("Rated bad")
    for completion_id in (first, last):
        assert (await site.client.get(f"/burnish/completions/{completion_id}")).json()["rating"] == -1.0


async def test_only_the_rows_on_the_screen_are_in_the_document(page: Page, site: Site) -> None:
    for number in range(130):
        await site.ask(f"Row {number}?")
    await read(page, site)
    assert await rows(page).count() < 40
    # Each time that the end comes near, more are loaded.
    await page.wait_for_function("""() => {
        const list = document.querySelector(".live-list");
        list.scrollBy(0, list.clientHeight);
        return list.textContent.includes("Row 0?");
    }""")
    assert await rows(page).count() < 40


async def test_filters_and_what_falls_out_of_them(page: Page, site: Site) -> None:
    await site.ask("Filtered, failed?", reply(b'{"error": {"message": "overloaded"}}', status="503 Busy"))
    rated, unrated = [await site.ask(f"Filtered, {which}?") for which in ("one", "two")]
    await read(page, site, rated)
    await page.get_by_label("Rating", exact=True).select_option("unrated")
    await page.get_by_role("searchbox").fill("filtered,")
    await expect(rows(page)).to_have_count(3)
    await page.get_by_role("heading", name="Live").click()
    await page.keyboard.press("2")
    await in_front(page, unrated)
    await expect(rows(page)).to_have_count(2)
    await page.get_by_role("button", name="Failed").click()
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_contain_text("overloaded")
    await page.get_by_label("Rating", exact=True).select_option("good")
    await expect(page.get_by_text("No answer fits these filters.")).to_be_visible()
    await page.get_by_role("button", name="Show all answers").click()
    await expect(rows(page).nth(3)).to_be_visible()


async def test_a_filter_chosen_just_before_a_search_counts(page: Page, site: Site) -> None:
    await site.ask("Chosen and searched?")
    hold = asyncio.Event()

    async def later(route: Route) -> None:
        await hold.wait()
        await route.continue_()

    await page.route("**/burnish/completions?*rating=*", later)
    await read(page, site)
    await page.get_by_label("Rating", exact=True).select_option("unrated")
    async with page.expect_request(re.compile("q=searched")) as asked:
        await page.get_by_role("searchbox").fill("searched")
    hold.set()
    assert "rating=unrated" in (await asked.value).url
    await expect(rows(page)).to_have_count(1)
    await expect(page.get_by_label("Rating", exact=True)).to_have_value("unrated")


async def test_an_answer_that_is_gone_is_said_to_be(page: Page, site: Site) -> None:
    await site.ask("Is something gone?")
    await read(page, site, "cmpl_gone")
    await expect(conversation(page)).to_contain_text("This answer isn't in the log.")


async def test_one_column_on_a_narrow_screen(page: Page, site: Site) -> None:
    completion_id = await site.ask("Narrow?")
    await page.set_viewport_size({"width": 320, "height": 640})
    await read(page, site)
    await expect(conversation(page)).to_be_hidden()
    await rows(page).first.click()
    await in_front(page, completion_id)
    await expect(rows(page).first).to_be_hidden()
    await page.wait_for_function("document.documentElement.scrollWidth <= 320")
    await page.get_by_role("button", name="Good g").click()
    await expect(message(page)).to_contain_text("Rated good")
    await message(page).get_by_role("button", name="Close").click()  # it lies over the way back
    await page.get_by_role("button", name="All answers").click()
    await expect(rows(page).first).to_be_visible()


async def test_no_accessibility_faults_while_rating(context: BrowserContext, page: Page, site: Site) -> None:
    completion_id = await site.ask("Accessible?", "```python\nprint()\n```\nIt prints.")
    rating = {"completion_id": completion_id, "rating": "bad", "comment": "no"}
    await site.client.post("/v1/feedback", json=rating)
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        await read(page, site, completion_id)
        await expect(conversation(page)).to_contain_text("It prints.")
        assert await violations(page) == []
        for key in ("c", "f"):
            await page.keyboard.press(key)
            await expect(page.locator("textarea")).to_be_focused()
            assert await violations(page) == []
            await page.keyboard.press("Escape")
