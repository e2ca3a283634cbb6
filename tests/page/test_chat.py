"""The Chat view: what it asks, what it shows, and what is in the log afterwards."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, Route, expect

from tests.page.axe import SCHEMES, violations
from tests.page.site import Site, site_here
from tests.support.inprocess import calling
from tests.support.inprocess import logged as of_log
from tests.support.lora import write_peft
from tests.support.patience import within
from tests.support.tiny_gguf import TINY, tiny_lora
from tests.support.upstream import Received, Script, events, reply, stream

BY_HAND = {"schedule": "manual"}
TWO_MODELS = [{"id": name, "object": "model"} for name in ("tiny", "tiny@base", "tiny@v3")]
HOSTILE = (
    "Look:\n\n```html\n<script>window.hit = 1</script>\n```\n\n- <img src=x onerror=window.hit=1>\n"
    "- \u202egnp.exe\n\n## Title **bold** `code` [link](javascript:hit)"
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A burnish before an upstream whose models are named like versions."""
    async with site_here(tmp_path_factory.mktemp("models")) as site:
        answer = site.answer

        async def script(received: Received, writer: asyncio.StreamWriter) -> None:
            if received.method == "GET":
                await reply(orjson.dumps({"object": "list", "data": TWO_MODELS}))(received, writer)
            else:
                await answer(received, writer)

        site.upstream.script = script
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def chat(page: Page, site: Site) -> Page:
    await page.goto(f"{site.url}/#/chat")
    await expect(message(page)).to_be_visible()
    return page


def message(page: Page) -> Locator:
    return page.get_by_label("Message", exact=True)


def answers(page: Page) -> Locator:
    return page.get_by_role("article")


def thumb(page: Page, word: str) -> Locator:
    return page.get_by_role("button", name=re.compile(f"^{word}"))


def one_after_another(*texts: str) -> Script:
    """Stream another text for each request, in this order."""
    left = list(texts)

    async def script(received: Received, writer: asyncio.StreamWriter) -> None:
        await stream(events(left.pop(0)))(received, writer)

    return script


async def send(page: Page, site: Site, prompt: str, script: Script) -> None:
    site.scripts[prompt] = script
    await message(page).fill(prompt)
    await message(page).press("Enter")


async def say(page: Page, site: Site, prompt: str, *texts: str) -> None:
    """Send a message, and wait for as many answers as there are texts."""
    await send(page, site, prompt, one_after_another(*texts))
    for text in texts:
        await expect(answers(page).filter(has_text=text).get_by_role("button", name="Copy")).to_be_visible()


async def logged(site: Site, prompt: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait for so many completions with this prompt; return them, earliest first, with all that is known of them.

    The page knows earlier than burnish that it has stopped an answer.
    """
    ids: list[str] = []
    async with asyncio.timeout(within(30)):
        while len(ids) < count:
            listed = (await site.client.get("/burnish/completions", params={"limit": 100})).json()["data"]
            ids = [each["id"] for each in listed if each["prompt"] == prompt][::-1]
    return [(await site.client.get(f"/burnish/completions/{each}")).json() for each in ids]


async def stored(page: Page) -> None:
    """Wait until burnish has stored all that was said of answers: the page shows it earlier."""
    await page.wait_for_function(
        """() => JSON.parse(sessionStorage["burnish.chat"]).turns.every(({ answers, judged }) =>
            answers.every(({ rated, feedback }) => !rated || feedback)
            && judged.every(({ winner, feedback }) => !winner || feedback))"""
    )


async def said(site: Site, prompt: str) -> list[dict[str, Any]]:
    """Return the feedback on the answers to a prompt that wasn't taken back, earliest first."""
    rows: list[dict[str, Any]] = []
    for completion in await logged(site, prompt):
        about = {"completion_id": completion["id"]}
        rows += (await site.client.get("/v1/feedback", params=about)).json()["data"]
    return sorted((each for each in rows if not each["undone_at"]), key=lambda each: each["id"])


async def test_an_answer_streams_and_can_be_stopped(chat: Page, site: Site) -> None:
    prompt, hold = "Tell me of rivers.", asyncio.Event()
    await send(chat, site, prompt, stream(events("Rivers run downhill and", done=False), hold=hold))
    await expect(answers(chat)).to_contain_text("Rivers run downhill")
    assert await thumb(chat, "Good").count() == 0, "it hasn't ended"
    await chat.keyboard.press("Escape")
    await expect(answers(chat)).to_contain_text("Stopped.")
    (stopped,) = await logged(site, prompt)
    hold.set()
    assert stopped["outcome"] == "cancelled"
    site.scripts[prompt] = one_after_another("Rivers run downhill and reach the sea.")
    await chat.get_by_role("button", name="Ask again").click()
    await expect(answers(chat)).to_contain_text("reach the sea.")
    await expect(answers(chat)).not_to_contain_text("Stopped.")
    _, whole = await logged(site, prompt, 2)
    assert (whole["outcome"], whole["session"]) == ("complete", stopped["session"])
    assert whole["session"].startswith("page-")


async def test_an_answer_is_rated_by_keys_and_a_rating_is_taken_back(chat: Page, site: Site) -> None:
    prompt = "Name a colour for a bench."
    await say(chat, site, prompt, "Green, I think.")
    await chat.keyboard.press("Escape")
    await chat.keyboard.press("b")
    await expect(thumb(chat, "Bad")).to_have_attribute("aria-pressed", "true")
    await chat.keyboard.press("4")
    await expect(answers(chat)).to_contain_text("4 of 5: Good")
    await stored(chat)
    await chat.keyboard.press("c")
    await chat.keyboard.type("say why")
    await chat.keyboard.press("Enter")
    await expect(answers(chat)).to_contain_text("say why")
    found = [(each["reward"], each["scale"], each["comment"]) for each in await said(site, prompt)]
    assert found == [(-1.0, "binary", None), (0.5, "likert", None), (None, None, "say why")]
    await chat.keyboard.press("u")
    await expect(answers(chat)).not_to_contain_text("say why")
    await chat.keyboard.press("u")
    await expect(thumb(chat, "Bad")).to_have_attribute("aria-pressed", "true")
    await expect(answers(chat)).not_to_contain_text("4 of 5")
    await chat.keyboard.press("g")
    await expect(thumb(chat, "Good")).to_have_attribute("aria-pressed", "true")
    await thumb(chat, "Good").click()
    await expect(chat.get_by_text("Taken back: good.")).to_be_visible()
    (left,) = await said(site, prompt)
    assert (left["reward"], left["rater"]) == (-1.0, "local")


async def test_keys_work_in_the_empty_field_and_a_letter_before_others_is_text(
    chat: Page, site: Site
) -> None:
    prompt = "Name a tree for a garden."
    await say(chat, site, prompt, "An oak.")
    await expect(message(chat)).to_be_focused()
    await chat.keyboard.press("b")
    await expect(thumb(chat, "Bad")).to_have_attribute("aria-pressed", "true")
    await chat.keyboard.press("5")
    await expect(answers(chat)).to_contain_text("5 of 5: Excellent")
    await chat.keyboard.press("c")
    await expect(chat.get_by_role("dialog", name="What should be different?")).to_be_visible()
    await chat.keyboard.press("Escape")
    site.scripts[prompt] = one_after_another("A beech.")
    await message(chat).focus()
    await chat.keyboard.press("r")
    await expect(answers(chat)).to_have_count(2)
    await expect(message(chat)).to_have_value("")
    await expect(thumb(chat, "Good")).to_have_count(2)
    await stored(chat)
    # However slow this machine types, it types a word.
    slowly = "(w => { window.setTimeout = (run, ms) => w(run, ms === 400 ? 1e6 : ms) })(window.setTimeout)"
    await chat.evaluate(slowly)
    for text in ("but why?", "1 or 2?", "can you", "now", "redo it", "gbgb", "i mean", "b ", "nÉ"):
        await chat.keyboard.type(text)
        await expect(message(chat)).to_have_value(text)
        await message(chat).fill("")
    for cancels in ("Backspace", "Escape"):
        await message(chat).focus()
        await chat.keyboard.press("g")
        await chat.keyboard.press(cancels)
    await message(chat).click()
    await chat.keyboard.press("n")
    await expect(message(chat)).to_have_value("n")
    found = [(each["reward"], each["scale"]) for each in await said(site, prompt)]
    assert found == [(-1.0, "binary"), (1.0, "likert")]


async def test_a_new_chat_gives_way_to_the_last_one(chat: Page, site: Site) -> None:
    await say(chat, site, "Name a flower.", "A rose.")
    hold = asyncio.Event()
    await send(chat, site, "Name a herb.", stream(events("It is mint, I think."), hold=hold))
    await expect(answers(chat).last).to_contain_text("mint")
    await chat.get_by_role("button", name="New chat").click()
    await expect(answers(chat)).to_have_count(0)
    hold.set()
    await chat.get_by_role("button", name="Back to the last one").click()
    await expect(answers(chat).first).to_contain_text("A rose.")
    await expect(answers(chat).last).to_contain_text("Stopped.")


async def test_a_rating_that_fails_says_so_and_is_tried_again(chat: Page, site: Site) -> None:
    prompt = "What is a failing rating?"
    await chat.route("**/v1/feedback", lambda route: route.abort())
    await say(chat, site, prompt, "One that nobody hears.")
    await thumb(chat, "Good").click()
    await expect(chat.get_by_text("The rating wasn't saved: burnish doesn't answer.")).to_be_visible()
    await expect(thumb(chat, "Good")).to_have_attribute("aria-pressed", "false")
    await chat.unroute("**/v1/feedback")
    await chat.get_by_role("button", name="Try again").click()
    await expect(thumb(chat, "Good")).to_have_attribute("aria-pressed", "true")
    await stored(chat)
    (rating,) = await said(site, prompt)
    assert rating["reward"] == 1.0


async def test_several_answers_are_compared_in_pairs_by_keys(chat: Page, site: Site) -> None:
    prompt, texts = "A name for a boat?", ("Gull it is.", "Call it Heron.", "Why not Auk?")
    await chat.get_by_label("How many answers").select_option("3")
    await say(chat, site, prompt, *texts)
    for scheme in SCHEMES:
        await chat.emulate_media(color_scheme=scheme)
        assert await violations(chat) == []
    shown = [await answers(chat).nth(place).locator(".text").inner_text() for place in range(3)]
    assert sorted(shown) == sorted(texts)
    await chat.keyboard.press("ArrowRight")
    await expect(chat.get_by_text("You found B better than A.")).to_be_visible()
    judging = chat.get_by_role("group", name="Which answer is better?")
    await expect(judging).to_contain_text(re.compile("B.*C", re.S))
    await chat.keyboard.press("ArrowLeft")
    await expect(chat.get_by_text("You found B better than C.")).to_be_visible()
    await expect(chat.get_by_text("Which is better?")).not_to_be_visible()
    await expect(answers(chat).nth(1)).to_contain_text("goes on from here")
    await stored(chat)
    by_text = {each["reply"]["content"]: each["id"] for each in await logged(site, prompt, 3)}
    pairs = [(each["completion_id"], each["preferred_over"]) for each in await said(site, prompt)]
    ids = [by_text[text] for text in shown]
    assert pairs == [(ids[1], ids[0]), (ids[1], ids[2])]
    assert all(each["usable"] for each in await said(site, prompt))
    await chat.get_by_label("How many answers").select_option("1")
    await say(chat, site, "And its colour?", "Red.")
    (after,) = await logged(site, "And its colour?")
    assert after["continues"] == ids[1]


async def test_a_regenerated_answer_becomes_a_preference_if_it_is_judged(chat: Page, site: Site) -> None:
    prompt = "A word for rain?"
    await say(chat, site, prompt, "Drizzle.")
    site.scripts[prompt] = one_after_another("Downpour.")
    await chat.keyboard.press("Escape")
    await chat.keyboard.press("r")
    judging = chat.get_by_role("group", name="Which answer is better?")
    await judging.get_by_role("button", name="B", exact=False).last.wait_for()
    first, again = await logged(site, prompt, 2)
    assert (again["messages"], again["reply"]["content"]) == (first["messages"], "Downpour.")
    assert await said(site, prompt) == [], "asking again says nothing by itself"
    await judging.get_by_role("button", name=re.compile("^A")).click()
    await expect(chat.get_by_text("You found A better than B.")).to_be_visible()
    await stored(chat)
    (pair,) = await said(site, prompt)
    assert (pair["completion_id"], pair["preferred_over"]) == (first["id"], again["id"])
    await chat.get_by_role("button", name="Take back: You found A better than B.").click()
    await expect(judging).to_be_visible()
    assert await said(site, prompt) == []
    await chat.keyboard.press("=")
    await expect(chat.get_by_text("You found A and B equal.")).to_be_visible()
    assert await said(site, prompt) == [], "a tie is no preference"
    await chat.keyboard.press("u")
    await expect(judging).to_be_visible()
    await chat.keyboard.press("s")
    await expect(judging).not_to_be_visible()


async def test_two_models_side_by_side_are_blind_until_they_are_judged(chat: Page, site: Site) -> None:
    prompt = "What is lichen?"
    await chat.get_by_label("Who answers").select_option(label="Version 3")
    await chat.get_by_label("How many answers").select_option(label="Beside it: Base model")
    await say(chat, site, prompt, "A fungus and an alga.", "A plant, nearly.")
    await expect(chat.get_by_text("model hidden")).to_have_count(2)
    await expect(chat.get_by_text("tiny@")).to_have_count(0)
    await chat.keyboard.press("ArrowLeft")
    await expect(chat.get_by_text("model hidden")).to_have_count(0)
    await expect(chat.locator(".answer > header").filter(has_text="tiny@")).to_have_count(2)
    shown = [await each.inner_text() for each in await chat.locator(".answer > header").all()]
    await stored(chat)
    made = {each["model_served"]: each for each in await logged(site, prompt, 2)}
    assert set(made) == {"tiny@base", "tiny@v3"}
    (pair,) = await said(site, prompt)
    better, worse = (re.search(r"tiny@\w+", text) for text in shown)
    assert better
    assert worse
    assert (pair["completion_id"], pair["preferred_over"]) == (made[better[0]]["id"], made[worse[0]]["id"])


async def test_the_base_model_answers_beside_version_1(page: Page, tiny_model: Path, tmp_path: Path) -> None:
    adapter = write_peft(tmp_path / "trained", tiny_lora(TINY, 1))
    async with calling(tmp_path, model=str(tiny_model), engine="auto", context=512, train=BY_HAND) as http:
        await page.goto(f"{http.base_url}#/chat")
        count = page.get_by_label("How many answers")
        # Live is the base model: there is nothing to compare.
        await expect(count.get_by_role("option")).to_have_count(4)
        assert (await http.post("/burnish/adapters", json={"path": str(adapter)})).status_code == 201
        assert (await http.post("/burnish/adapters/1/promote", json={})).status_code == 200
        models = page.get_by_label("Who answers").locator("option")
        await expect(models).to_have_text(["Live version (version 1)", "Base model", "Version 1"])
        await count.select_option(label="Beside it: Base model")
        await message(page).fill("Who are you two? " * 24)  # leaves little room for an answer
        await message(page).press("Enter")
        await page.get_by_role("button", name="Skip").wait_for()
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_text("You found B better than A.")).to_be_visible()
        await stored(page)
        for version in ("base", "v1"):
            await expect(answers(page).get_by_text(version, exact=True)).to_be_visible()
        made = await of_log(http)
        (pair,) = (await http.get("/v1/feedback")).json()["data"]
    assert {each["adapter_version"] for each in made} == {0, 1}
    assert {pair["completion_id"], pair["preferred_over"]} == {each["id"] for each in made}


async def test_the_longest_answer_is_that_of_a_small_model_until_another_is_chosen(
    page: Page, site: Site, tiny_model: Path, tmp_path: Path
) -> None:
    async with calling(tmp_path, model=str(tiny_model), engine="auto", context=1024, train=BY_HAND) as http:
        await page.goto(f"{http.base_url}/#/chat")
        longest = page.get_by_label("Longest answer")
        await expect(longest).to_have_value("512")
        for number, length in enumerate(("512", "128", "0")):
            await longest.select_option(length)
            async with page.expect_request("**/v1/chat/completions") as asked:
                await message(page).fill("Go on for ever.")
                await message(page).press("Enter")
            given = (await asked.value).post_data_json
            assert given.get("max_tokens") == (int(length) or None)
            await message(page).press("Escape")
            await expect(page.get_by_role("button", name="Send")).to_have_count(1)
            await expect(answers(page)).to_have_count(number + 1)
    # Of another upstream's model, burnish knows nothing.
    await page.goto(f"{site.url}/#/chat")
    await expect(longest).to_have_value("0")


async def test_a_reload_keeps_the_conversation_and_a_new_chat_begins_another(chat: Page, site: Site) -> None:
    prompt = "Do you remember?"
    await say(chat, site, prompt, "I do, if told.")
    await chat.reload()
    await expect(answers(chat)).to_contain_text("I do, if told.")
    await chat.keyboard.press("i")
    await chat.keyboard.press("Shift+L")  # a letter, since the field has the focus
    await expect(message(chat)).to_have_value("L")
    await message(chat).fill("")
    await chat.keyboard.press("Escape")
    await chat.keyboard.press("Shift+L")
    await expect(chat.get_by_role("heading", name="Live")).to_be_visible()
    await chat.keyboard.press("Shift+C")
    await say(chat, site, "What did I ask?", "Whether I remember.")
    (before,), (after,) = await logged(site, prompt), await logged(site, "What did I ask?")
    assert after["continues"] == before["id"]
    await chat.keyboard.press("Escape")
    await chat.keyboard.press("n")
    await expect(answers(chat)).to_have_count(0)
    await say(chat, site, "Anew, please.", "Gladly, anew.")
    (anew,) = await logged(site, "Anew, please.")
    assert anew["continues"] is None
    assert anew["session"] != before["session"]


async def test_an_answer_goes_on_while_another_view_is_shown(chat: Page, site: Site) -> None:
    prompt, hold = "Write on without me.", asyncio.Event()
    await send(chat, site, prompt, stream(events("It went on."), hold=hold))
    await expect(answers(chat)).to_contain_text("It went")
    await chat.get_by_role("link", name="Health").click()
    hold.set()
    await expect(chat.get_by_role("heading", name="Health")).to_be_visible()
    await chat.get_by_role("link", name="Chat").click()
    await expect(thumb(chat, "Good")).to_be_visible()
    (whole,) = await logged(site, prompt)
    assert whole["outcome"] == "complete"


async def test_text_of_a_model_stays_text(chat: Page, site: Site) -> None:
    await send(chat, site, "Be hostile.", one_after_another(HOSTILE))
    answer = answers(chat)
    await expect(answer.get_by_role("button", name="Copy")).to_be_visible()  # it has ended
    await expect(answer.locator("pre")).to_have_text("<script>window.hit = 1</script>")
    items = await answer.locator("li").all_inner_texts()
    assert items == ["<img src=x onerror=window.hit=1>", "⟨U+202E⟩gnp.exe"]
    await expect(answer.locator("strong")).to_have_text("bold")
    await answer.get_by_role("button", name="As written").click()
    await expect(answer.locator(".text")).to_contain_text("## Title **bold** `code` [link]")
    await expect(answer.locator("strong")).to_have_count(0)
    assert await answer.locator("script, img, a").count() == 0
    assert await chat.evaluate("window.hit") is None


async def test_markdown_grows_without_being_drawn_anew(chat: Page, site: Site) -> None:
    """What stands stays in the document while the rest is written: who selected or scrolled it keeps that."""
    rest = asyncio.Event()
    beginning = "Two:\n\n1. one\n   - deep\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    text = f"{beginning}\nSee [there](https://example.org/) and ![a cat](https://example.org/cat.png).\n\n```py\nx"
    parts = events(text)
    begun = 2 + beginning.count(" ")
    site.scripts["Show a table."] = stream([*parts[:begun], b"".join(parts[begun:])], hold=rest)
    await message(chat).fill("Show a table.")
    await message(chat).press("Enter")
    table = answers(chat).get_by_role("table")
    await expect(table.get_by_role("cell", name="1")).to_be_visible()
    await expect(answers(chat).get_by_role("button", name="As written")).to_have_count(0)
    await table.evaluate("table => { window.table = table }")
    rest.set()
    await expect(answers(chat).get_by_role("button", name="As written")).to_be_visible()
    assert await table.evaluate("table => table === window.table")
    links = answers(chat).get_by_role("link")
    assert await links.all_inner_texts() == ["there", "[image: a cat]"]
    assert {await each.get_attribute("rel") for each in await links.all()} == {"noopener noreferrer nofollow"}
    await expect(answers(chat).locator("pre")).to_have_text("x")
    await expect(answers(chat).locator("li li")).to_have_text("deep")
    assert await violations(chat) == []


async def test_what_goes_wrong_is_said(chat: Page, site: Site) -> None:
    prompt = "Fail twice."
    error = orjson.dumps({"error": {"message": "The model is too large for this machine."}})
    await send(chat, site, prompt, reply(error, status="500 Internal Server Error"))
    await expect(chat.get_by_role("alert")).to_contain_text("The model is too large for this machine.")
    hold = asyncio.Event()
    site.scripts[prompt] = stream(events("It began and so", done=False), cut=True, hold=hold)
    await chat.get_by_role("button", name="Ask again").click()
    await expect(answers(chat)).to_contain_text("It began and")
    hold.set()
    await expect(chat.get_by_role("alert")).to_contain_text("The connection broke off")
    await expect(answers(chat)).to_contain_text("It began and")
    assert await violations(chat) == []


async def test_a_second_press_takes_back_what_is_still_being_stored(chat: Page, site: Site) -> None:
    prompt, hold = "Pressed twice?", asyncio.Event()

    async def later(route: Route) -> None:
        await hold.wait()
        await route.continue_()

    await chat.route("**/v1/feedback", later)
    await say(chat, site, prompt, "Once is enough.")
    await chat.keyboard.press("Escape")
    await chat.keyboard.press("g")
    await expect(thumb(chat, "Good")).to_have_attribute("aria-pressed", "true")
    await chat.keyboard.press("g")
    hold.set()
    await expect(chat.get_by_text("Taken back: good.")).to_be_visible()
    assert await said(site, prompt) == []


async def test_every_key_of_the_sheet_does_what_it_says(chat: Page, site: Site) -> None:
    prompt = "Which keys?"
    await chat.get_by_label("How many answers").select_option("2")
    await say(chat, site, prompt, "These ones.", "Those ones.")
    await chat.keyboard.press("Escape")
    await expect(message(chat)).not_to_be_focused()
    await chat.keyboard.press("?")
    sheet = chat.get_by_role("dialog", name="Keys").locator("section").filter(has_text="Take back")
    await expect(sheet).to_be_visible()
    keys = await sheet.locator("kbd").all_inner_texts()
    assert " ".join(keys) == "i / Esc j k g b 1 2 3 4 5 c u r ← → = s n"
    await chat.keyboard.press("Escape")
    await expect(sheet).to_be_hidden()

    first, second = answers(chat).nth(0), answers(chat).nth(1)
    await expect(first).to_have_class(re.compile("selected"))
    await chat.keyboard.press("j")
    await expect(second).to_have_class(re.compile("selected"))
    badges = {"g": "good", "b": "bad", "1": "Terrible", "2": "Poor", "3": "Okay", "5": "Excellent"}
    for key, shown in badges.items():
        await chat.keyboard.press(key)
        await expect(second.locator(".badge").filter(has_text=shown)).to_be_visible()
    await chat.keyboard.press("k")
    await expect(first).to_have_class(re.compile("selected"))
    for key in ("i", "/"):
        await chat.keyboard.press(key)
        await expect(message(chat)).to_be_focused()
        await expect(message(chat)).to_have_value("")
        await chat.keyboard.press("Escape")
    await chat.keyboard.press("c")
    comment = chat.get_by_role("dialog", name="What should be different?")
    await expect(comment).to_be_visible()
    await chat.keyboard.press("Escape")
    await expect(comment).to_be_hidden()
    await chat.keyboard.press("n")
    await expect(answers(chat)).to_have_count(0)
