"""What `burnish adapters show` says of a verdict, printed by the program itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from burnish.gate import Evidence, in_words, judge
from tests.gate.test_gate import DAMAGE, HEALTHY, LIKED
from tests.gate.test_gate_tools import BROKEN, SOUND, asked_with_tools
from tests.support.program import call
from tests.support.upstream import reply, upstream

VERSION = {"version": 7, "name": "smollm2@v7", "state": "candidate", "manifest": None, "events": []}


async def shown(evidence: Evidence, columns: int, **changes: Any) -> str:
    """Run the command before a burnish that answers with the verdict on this evidence."""
    verdict = judge(evidence)
    version = VERSION | {
        "reason": verdict.reason,
        "verdict": in_words(verdict.model_dump(mode="json") | changes),
    }
    wide = {"COLUMNS": str(columns)}
    async with upstream(reply(orjson.dumps(version))) as burnish:
        done = await asyncio.to_thread(call, "adapters", "show", "v7", url=burnish.url, env=wide)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_passed_says_why_in_plain_words() -> None:
    text = await shown(LIKED, 120)
    assert "It passed the checks: You would like its replies better" in text
    titles = ("is it better?", "is it sound?", "for information")
    better, sound, reported = map(text.index, titles)
    likes, distance = map(text.index, ("✓ You would like its replies better", "KL 0.24"))
    assert better < likes < sound < distance < reported
    assert reported < text.index("characters on average")


async def test_what_was_rejected_names_what_speaks_against_it_and_shows_it() -> None:
    text = await shown(replace(HEALTHY, candidate=DAMAGE["repetitive"]), 120)
    assert "It failed the checks: Repetitive replies: 12 of 12 (0 before), more than chance explains." in text
    assert "✗ Repetitive replies" in text
    assert "one of the repetitive replies" in text


async def test_tool_calls_are_shown_beside_each_other() -> None:
    text = await shown(asked_with_tools([BROKEN["no JSON"]] * 12, [SOUND] * 12), 120)
    assert "It failed the checks: Broken or cut tool calls" in text
    assert "Tool calls to prompts with tools: 12 of 12 (12 before)." in text
    before, after = (text.index(call) for call in ('→ weather(city="Paris")', "→ weather({city: Paris})"))
    assert before < after


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (replace(HEALTHY, held_out=()), "nothing proves that it is better"),
        (replace(HEALTHY, candidate=()), "no replies were sampled"),
    ],
)
async def test_what_is_undecided_says_what_is_missing(evidence: Evidence, why: str) -> None:
    text = await shown(evidence, 120)
    assert "The checks could not decide: " in text
    assert why in text


async def test_a_wide_terminal_has_both_replies_on_one_line_and_a_narrow_one_does_not() -> None:
    wide, narrow = await shown(LIKED, 120), await shown(LIKED, 79)
    assert any(line.split() == ["before", "after"] for line in wide.splitlines())
    starts = [line.split()[0] for line in narrow.splitlines() if line.strip()]
    assert starts.count("before") == starts.count("after") == 3
    assert max(map(len, narrow.splitlines())) <= 79
    assert "the largest gain" in wide and "the largest gain" in narrow


async def test_replies_cannot_steer_the_terminal() -> None:
    evil = {"prompt": "[red]asked[/]\x1b[2J", "before": "", "after": "a\x1b]0;title\x07 [bold]b[/]"}
    text = await shown(HEALTHY, 120, examples=[{"kind": "gain", "why": "the largest gain", **evil}])
    assert "\x1b" not in text and "\x07" not in text
    assert "[red]asked[/]" in text and "[bold]b[/]" in text
    assert "(nothing)" in text


async def test_a_verdict_from_before_there_were_kinds_is_still_shown() -> None:
    old = [{"name": "kl", "passed": True, "judged": True, "value": 0.1, "limit": 0.6, "text": "moved a bit"}]
    text = await shown(HEALTHY, 120, checks=old, outcome="undecided")
    assert "✓ moved a bit" in text
