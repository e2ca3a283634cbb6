"""The Duel view: two versions answer, nothing tells which is which, and keys judge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, Route, expect

from tests.learner.test_plan import Rated, rated
from tests.page.axe import SCHEMES, violations
from tests.page.site import Site
from tests.parts.test_duels import LONG, SHORT, asked, keep, sampled


@dataclass
class Arena:
    """A burnish whose version 1 is live; the double of an engine answers with the name that was asked for."""

    burnish: Rated
    url: str

    async def pairs(self, *questions: str, user: str = "alice", **texts: str) -> None:
        """Offer these pairs instead of those of the test before."""
        origin = await asked(self.burnish.http, questions[0], user)
        # The latest is shown first.
        pairs = [pair for question in reversed(questions) for pair in sampled(origin, question, **texts)]
        keep(self.burnish, *pairs)

    async def offer(self, page: Page, *questions: str, **texts: str) -> None:
        """Offer these pairs, and open the view."""
        await self.pairs(*questions, **texts)
        await page.goto(f"{self.url}/#/duel")
        await expect(side(page, "left")).to_be_visible()

    async def last_judgement(self) -> dict[str, Any]:
        return dict((await self.burnish.http.get("/v1/feedback?limit=1")).json()["data"][0])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def arena(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Arena]:
    folder = tmp_path_factory.mktemp("arena")
    weights = folder / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"the base")
    async with rated(folder, weights) as burnish:
        await burnish.version(0, [])
        yield Arena(burnish, str(burnish.http.base_url).rstrip("/"))


@pytest_asyncio.fixture(loop_scope="session")
async def duel(page: Page, arena: Arena) -> Page:
    """The view, with one pair."""
    await arena.offer(page, "How long do I boil an egg?")
    return page


def side(page: Page, name: str) -> Any:
    return page.get_by_role("region", name=f"The {name} answer")


async def place_of(page: Page, text: str) -> str:
    return "left" if text in (await side(page, "left").inner_text()) else "right"


async def test_an_arrow_judges_and_only_then_the_versions_are_told(duel: Page) -> None:
    main = duel.get_by_role("main")
    await expect(main).to_contain_text("How long do I boil an egg?")
    shown = await main.inner_text()
    assert SHORT in shown
    assert LONG in shown
    assert not {"v1", "base"} & set(shown.split())
    better = await place_of(duel, SHORT)
    await duel.keyboard.press(f"Arrow{better.capitalize()}")
    told = duel.get_by_role("main").get_by_role("status")
    await expect(told).to_contain_text(f"{better.capitalize()} is v1" if better == "left" else "right is v1")
    await expect(told).to_contain_text("The next training run learns from it.")
    await expect(side(duel, better)).to_contain_text("You preferred v1")

    await duel.keyboard.press("Enter")
    await expect(duel.get_by_role("heading", name="Nothing to judge")).to_be_visible()
    await expect(main).to_contain_text("The next training run brings new ones.")


async def test_equal_answers_are_revealed_and_teach_nothing(duel: Page) -> None:
    await duel.keyboard.press("=")
    told = duel.get_by_role("main").get_by_role("status")
    reason = "answers that are equally good teach nothing."
    await expect(told).to_contain_text(f"Nothing is learnt from it: {reason}")
    await expect(duel.get_by_role("button", name="Take it back")).to_have_count(0)


async def test_u_takes_the_judgement_back(duel: Page, arena: Arena) -> None:
    await duel.keyboard.press("ArrowLeft")
    await expect(duel.get_by_role("button", name="Take it back")).to_be_visible()
    await duel.keyboard.press("u")
    await expect(duel.get_by_role("main").get_by_role("status")).to_contain_text("You took it back")
    assert (await arena.last_judgement())["undone_at"]


@pytest.mark.parametrize(
    ("new", "old", "marks"),
    [
        ("The sky is blue today.", "The sky was blue yesterday.", (["is", "today"], ["was", "yesterday"])),
        ("I like cats a lot", "I like cats", (["a lot"], [])),
        ("猫が好き。", "犬が好き。", (["猫"], ["犬"])),
    ],
)
async def test_d_marks_the_words_that_only_one_answer_has(
    page: Page, arena: Arena, new: str, old: str, marks: tuple[list[str], list[str]]
) -> None:
    await arena.offer(page, "Which colour?", new=new, old=old)
    places = {"left": "right", "right": "left"}
    texts = {each: await side(page, each).inner_text() for each in places}
    first = next(each for each in places if texts[each].endswith(new))
    await page.keyboard.press("d")
    await expect(page.locator("mark")).to_have_count(sum(map(len, marks)))
    marked = [await side(page, each).locator("mark").all_inner_texts() for each in (first, places[first])]
    assert marked == list(marks)
    await page.keyboard.press("d")
    await expect(page.locator("mark")).to_have_count(0)


async def test_answers_too_long_to_compare_are_not_compared(page: Page, arena: Arena) -> None:
    words = " ".join(map(str, range(4_000)))
    await arena.offer(page, "How many?", new=words, old=" ".join(reversed(words.split())))
    await page.keyboard.press("d")
    await expect(page.get_by_text("The answers are too long to mark their words.")).to_be_visible()


async def test_s_skips_a_pair_which_comes_again_at_the_end(page: Page, arena: Arena) -> None:
    await arena.offer(page, "First?", "Second?")
    prompt = page.get_by_role("region", name="The prompt")
    await expect(prompt).to_contain_text("First?")
    await page.keyboard.press("s")
    await expect(prompt).to_contain_text("Second?")
    await page.keyboard.press("ArrowLeft")
    await expect(page.get_by_role("button", name="Next pair")).to_be_visible()
    await page.keyboard.press("n")
    await expect(prompt).to_contain_text("First?")


async def test_a_prompt_of_ones_own_is_answered_by_two_versions(duel: Page) -> None:
    await duel.keyboard.press("a")
    await duel.keyboard.type("Who are you today?")
    await duel.keyboard.press("Enter")
    await expect(duel.get_by_role("region", name="The prompt")).to_contain_text("Who are you today?")
    learnt = await place_of(duel, "@v1")
    await duel.keyboard.press(f"Arrow{learnt.capitalize()}")
    await expect(side(duel, learnt)).to_contain_text("You preferred v1")
    await duel.keyboard.press("Enter")
    await expect(duel.get_by_role("region", name="The prompt")).to_contain_text("boil an egg")


async def test_a_pair_that_was_judged_while_the_versions_answered_does_not_come_back(duel: Page) -> None:
    answered = asyncio.Event()

    async def hold(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    await duel.route("**/burnish/duels/ask", hold)
    await duel.get_by_role("textbox").fill("Who are you tonight?")
    await duel.get_by_role("button", name="Ask both").click()
    await expect(duel.get_by_role("button", name="Both are answering")).to_be_disabled()
    await duel.keyboard.press("=")
    await expect(duel.get_by_role("main").get_by_role("status")).to_contain_text("Nothing is learnt")
    answered.set()
    prompt = duel.get_by_role("region", name="The prompt")
    await expect(prompt).to_contain_text("Who are you tonight?")
    await duel.keyboard.press("=")
    await duel.get_by_role("button", name="Done").click()
    await expect(duel.get_by_role("heading", name="Nothing to judge")).to_be_visible()


async def test_a_judgement_that_fails_says_so_and_is_tried_again(duel: Page) -> None:
    async def refuse(route: Route) -> None:
        await (route.abort() if route.request.method == "POST" else route.continue_())

    await duel.route("**/burnish/duels", refuse)
    await duel.reload()
    await expect(side(duel, "left")).to_be_visible()
    await duel.keyboard.press("ArrowRight")
    await expect(duel.locator(".toast")).to_contain_text("Your judgement wasn't stored")
    await duel.unroute("**/burnish/duels")
    await duel.get_by_role("button", name="Try again").click()
    await expect(side(duel, "right")).to_contain_text("You preferred")


async def test_a_pair_that_was_erased_meanwhile_gives_way_to_the_next(page: Page, arena: Arena) -> None:
    await arena.offer(page, "Who am I?", user="gone")
    await arena.burnish.http.delete("/burnish/users/gone")
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(".toast")).to_contain_text("This pair is gone: what it quotes was erased")
    await expect(page.get_by_role("heading", name="Nothing to judge")).to_be_visible()


async def test_of_two_tabs_one_judges_a_pair(duel: Page, context: BrowserContext, arena: Arena) -> None:
    other = await context.new_page()
    await other.goto(f"{arena.url}/#/duel")
    await expect(side(other, "left")).to_be_visible()
    await duel.keyboard.press("ArrowRight")
    await expect(side(duel, "right")).to_contain_text("You preferred")
    await other.keyboard.press("ArrowLeft")
    judged = "This pair was judged before (the right one is better)"
    await expect(other.locator(".toast")).to_contain_text(judged)
    await expect(other.get_by_role("heading", name="Nothing to judge")).to_be_visible()


async def test_hostile_answers_are_only_text(page: Page, arena: Arena) -> None:
    hostile = "<img src=x onerror=alert(1)> \u202eevil\u202c \x1b[31mred"
    await arena.offer(page, "<b>Bold?</b>", new=hostile, old="Fine.")
    await expect(page.get_by_role("main")).to_contain_text("<b>Bold?</b>")
    await page.keyboard.press("d")
    marked = side(page, await place_of(page, "onerror"))
    await expect(marked).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(marked).to_contain_text("⟨U+202E⟩evil")
    await expect(page.locator("main img")).to_have_count(0)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_judged_and_marked_pair_has_no_barriers(duel: Page, scheme: Any) -> None:
    await duel.emulate_media(color_scheme=scheme)
    await duel.keyboard.press("d")
    assert await violations(duel) == []
    await duel.keyboard.press("ArrowLeft")
    await expect(side(duel, "left")).to_contain_text("You preferred")
    assert await violations(duel) == []


async def test_it_fits_a_narrow_screen(duel: Page) -> None:
    await duel.set_viewport_size({"width": 320, "height": 640})
    await duel.wait_for_function("document.documentElement.scrollWidth === 320")
    left, right = [await side(duel, each).bounding_box() for each in ("left", "right")]
    assert left
    assert right
    assert left["y"] + left["height"] <= right["y"], "below each other"


async def test_without_versions_it_says_why_there_is_nothing_to_judge(page: Page, site: Site) -> None:
    await page.goto(f"{site.url}/#/duel")
    await expect(page.get_by_role("heading", name="Nothing to judge")).to_be_visible()
    await expect(page.get_by_role("textbox")).to_have_count(0)
