"""The Learning view: what is missing, how a training went, what it found, and starting or pausing trainings."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.page.axe import violations
from tests.page.learnt import Learnt
from tests.page.site import Site


async def test_the_latest_training_shows_curves_verdict_and_answers(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/learning")
    await expect(page.get_by_text("not put to use")).to_have_count(2)
    for title, range_ in (
        ("Good ahead of bad", "from 0.02 to 0.8"),
        ("Error", "from 1 to 0.025"),
        ("Distance from base", "from 0.01 to 0.4"),
    ):
        chart = page.get_by_role("img", name=f"{title}: {range_}")
        await expect(chart.locator("canvas")).to_be_visible()
    verdict = "It passed the checks: You would like its replies better"
    await expect(page.locator(".verdict")).to_contain_text(verdict)
    await expect(page.get_by_role("article").first).to_contain_text("the largest gain")
    jargon = page.get_by_text("KL divergence")
    await expect(jargon).not_to_be_visible()
    await page.get_by_text("What exactly is drawn").click()
    await expect(jargon).to_be_visible()
    assert await violations(page) == []


async def test_what_is_missing_until_the_next_training_is_counted(page: Page, learnt: Learnt) -> None:
    learner = (await learnt.get("/burnish/status"))["learner"]
    ready, needed = learner["ready"], learner["needed"]
    await page.goto(f"{learnt.url}/#/learning")
    for label, key in (("New ratings", "new"), ("Good", "good"), ("Bad", "bad")):
        meter = page.get_by_role("meter", name=f"{label}: {ready[key]} of {needed[key]}", exact=True)
        await expect(meter).to_be_visible()
    comments = f"{ready['new_comments']} of {needed['comments']} comments"
    await expect(page.get_by_role("meter", name=comments, exact=True)).to_be_visible()
    assert comments in learner["reason"]
    await expect(page.get_by_text(learner["reason"][1:])).to_be_visible()


async def test_rollouts_that_wait_are_named_with_their_command(page: Page, learnt: Learnt) -> None:
    made = (await learnt.client.post("/v1/rollouts", json={"task": "sort tickets"})).json()
    answer = await learnt.ask(authorization=f"Bearer {made['api_key']}")
    rewarded = await learnt.client.post(f"/v1/rollouts/{made['id']}/reward", json={"value": 1})
    ended = await learnt.client.post(f"/v1/rollouts/{made['id']}/end")
    assert answer.is_success and rewarded.is_success and ended.is_success
    await page.goto(f"{learnt.url}/#/learning")
    said = "1 rollout of the task “sort tickets” can be learnt from: burnish train --rollouts 'sort tickets'"
    await expect(page.get_by_text(said)).to_be_visible()


async def test_an_earlier_training_says_that_no_curve_is_kept(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/learning/{learnt.run_of_v1}")
    await expect(page.get_by_role("heading", name="An earlier training")).to_be_visible()
    await expect(page.get_by_text("No curves are kept")).to_be_visible()


async def test_trainings_are_paused_and_resumed(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/learning")
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await page.keyboard.press("p")
    await expect(page.get_by_text("Trainings are paused.")).to_be_visible()
    assert (await learnt.get("/burnish/status"))["learner"]["state"] == "paused"
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("Trainings are paused.")).not_to_be_visible()
    assert (await learnt.get("/burnish/status"))["learner"]["state"] == "idle"


async def test_without_new_ratings_training_does_not_start_and_says_why(page: Page, learnt: Learnt) -> None:
    await page.goto(f"{learnt.url}/#/learning")
    await page.get_by_role("button", name="Train now").click()
    dialog = page.get_by_role("dialog", name="Training can't start")
    await expect(dialog).to_contain_text("no rating is ready")
    await page.keyboard.press("Escape")
    await expect(dialog).not_to_be_visible()
    assert len((await learnt.get("/burnish/runs"))["runs"]) == 3


async def test_where_burnish_does_not_train_the_view_says_so(page: Page, site: Site) -> None:
    reason = (await site.client.get("/burnish/status")).json()["learner"]["reason"]
    for view in ("learning", "versions"):
        await page.goto(f"{site.url}/#/{view}")
        await expect(page.get_by_role("main")).to_contain_text(reason)
