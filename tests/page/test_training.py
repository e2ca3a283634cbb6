"""A training from the key that starts it to its verdict, as the page follows it. Trainer, gate and swap are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.support.inprocess import calling
from tests.support.patience import within

TRAINS_MS = 1000 * within(300)
"""On a busy machine. The model is tiny: half a minute is usual."""
TRAIN = {"schedule": "manual", "epochs": 2, "on_battery": True, "max_load": 1, "memory_gb": 0}
ANSWERS = 16

# Remembers each phase that was in front; some last no longer than a look.
WATCH = """
window.phases = [];
new MutationObserver(() => {
  const now = document.querySelector(".phases [aria-current=step]")?.textContent;
  if (now && now !== phases.at(-1)) phases.push(now);
}).observe(document, { childList: true, subtree: true, attributes: true });
"""

pytestmark = pytest.mark.slow


async def test_a_training_is_followed_to_its_verdict(page: Page, tiny_model: Path, tmp_path: Path) -> None:
    async with calling(tmp_path, model=str(tiny_model), engine="auto", context=512, train=TRAIN) as http:
        for number in range(ANSWERS):
            asked = {"messages": [{"role": "user", "content": f"Question {number}?"}], "max_tokens": 12}
            answer = await http.post("/v1/chat/completions", json=asked)
            rating = {"completion_id": answer.headers["x-burnish-completion-id"]}
            # Some ratings are kept aside, by chance; of eight comments at least two are learnt from.
            rating |= {"rating": "bad", "comment": "too long"} if number % 2 else {"rating": "good"}
            assert (await http.post("/v1/feedback", json=rating)).is_success
        await page.add_init_script(WATCH)
        await page.goto(f"{http.base_url}/#/learning")
        await expect(page.get_by_role("meter", name="New ratings: 16 of")).to_be_visible()
        await page.keyboard.press("t")
        dialog = page.get_by_role("dialog", name="Train now?")
        await expect(dialog).to_contain_text(re.compile(r"It learns from [2-8] comments, "))
        await expect(dialog).to_contain_text("starts from the base model")
        await dialog.get_by_role("button", name="Train").click()
        await expect(page.get_by_role("heading", name="Training now")).to_be_visible()
        await expect(page.get_by_role("button", name="Train now")).to_be_disabled()
        phases = page.get_by_role("list", name="Phases of this training").locator("li")
        await expect(phases.first).to_be_visible()
        await expect(page.get_by_text(re.compile(r"^Step [1-9] of 9 · "))).to_be_visible()
        await expect(page.get_by_role("banner")).to_contain_text(re.compile(r"Learning, step [1-9] of 9"))
        names = await phases.all_inner_texts()
        chart = page.get_by_role("img", name="Good ahead of bad: from")
        await expect(chart.locator("canvas")).to_be_visible(timeout=TRAINS_MS)
        await expect(page.get_by_role("heading", name="The latest training")).to_be_visible(timeout=TRAINS_MS)
        passed = await page.evaluate("phases")
        assert passed == sorted(passed, key=names.index)
        # The page looks twice a second; these phases take longer even with the tiny model.
        assert {"Learns", "Both answer simple questions"} <= set(passed)
        verdict = (await http.get("/burnish/adapters/1")).json()["verdict"]
        await expect(page.locator(".verdict")).to_contain_text(verdict["headline"])
        pairs = (await http.get("/burnish/adapters/1")).json()["samples"]
        assert {(each["before"]["version"], each["after"]["version"]) for each in pairs} == {(0, 1)}
        await expect(page.get_by_role("article").first).to_be_visible()
