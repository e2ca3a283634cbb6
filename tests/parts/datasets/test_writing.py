"""Datasets for other trainers: what each line holds, and why the others aren't there."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from burnish.parts.datasets.writing import example_lines
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from tests.parts.datasets.test_round_trip import CALL, TOOL, address, exported, imported
from tests.proxy.log.exchanges import capture, rate, user
from tests.support.inprocess import behind
from tests.support.program import call
from tests.support.upstream import completion, reply

ASKED = [{"role": "user", "content": "What is tea?"}]
WEATHER: list[dict[str, Any]] = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "leaves"},
]
LONG, SHORT, BEST = ({"role": "assistant", "content": text} for text in ("Very long.", "Short.", "Best."))


def answer(number: int, messages: list[dict[str, Any]], said: dict[str, Any], **more: Any) -> dict[str, Any]:
    name = f"cmpl_{number:026d}"
    return {
        "object": "completion", "id": name, "conversation_id": f"conv_{number}", "created_at": 1.0, "surface": "chat",
        "model_asked": "m", "caller": "ann", "upstream": "u", "model_served": "m", "outcome": "complete",
        "status": 200, "total_s": 1.0, "messages": messages, "reply": said, **more,
    }  # fmt: skip


def feedback(number: int, about: int, **more: Any) -> dict[str, Any]:
    made = {"object": "feedback", "id": f"fb_{number:026d}", "created_at": 2.0, "target": "completion_id"}
    if "preferred_over" in more:
        more["preferred_over"] = f"cmpl_{more['preferred_over']:026d}"
    return made | {"completion_id": f"cmpl_{about:026d}", "rater": f"r{number}"} | more


RECORDS = [
    answer(1, ASKED, LONG),
    answer(2, ASKED, SHORT),
    answer(3, ASKED, BEST),
    answer(4, WEATHER, SHORT, params={"tools": [TOOL]}),
    answer(5, ASKED, LONG, outcome="cut"),
    answer(6, [{"role": "user", "content": "And coffee?"}], SHORT),
    feedback(1, 1, reward=-1.0, scale="binary"),
    feedback(2, 2, reward=1.0, scale="binary"),
    feedback(3, 3, preferred_over=2),
    feedback(4, 4, reward=-0.5, correction="Leaves."),
    feedback(5, 5, reward=1.0),
    feedback(6, 6, comment="Hm."),
]


async def test_each_format_and_what_it_leaves_out(tmp_path: Path) -> None:
    file, folder = tmp_path / "log.jsonl", tmp_path / "trl"
    file.write_text("\n".join(map(json.dumps, RECORDS)))
    made: dict[str, Any] = {}
    async with behind(tmp_path, reply(completion())) as (http, _):
        assert (await imported(http, file))["skipped"] == []
        for name in ("sft", "dpo", "kto"):
            done = await exported(http, name)
            made[name] = [json.loads(line) for line in done.stdout.splitlines()], done.stderr.splitlines()
        await exported(http, "trl", "--out", folder)
        homeless = await asyncio.to_thread(call, "data", "export", "--as", "trl", url=address(http))
    leaves = {"role": "assistant", "content": "Leaves."}
    tools = {"tools": [TOOL]}
    cut = "left out 1: the answer was cut off or never came"
    lines, words = made["sft"]
    assert lines == [{"messages": [*ASKED, SHORT]}, {"messages": [*WEATHER, leaves], **tools}]
    assert words[0] == "wrote 2 lines: 1 corrections, 1 good answers"
    bad, unrated = "left out 1: rated bad and not corrected", "left out 2: neither rated good nor corrected"
    assert {*words[1:]} == {cut, bad, unrated}
    lines, words = made["dpo"]
    assert lines == [
        {"prompt": ASKED, "chosen": [SHORT], "rejected": [LONG]},
        {"prompt": ASKED, "chosen": [BEST], "rejected": [SHORT]},
        {"prompt": WEATHER, "chosen": [leaves], "rejected": [SHORT], **tools},
    ]
    assert words[0] == "wrote 3 lines: 1 corrections, 1 good and bad answers to the same, 1 preferences"
    assert {*words[1:]} == {cut, "left out 2: nothing to compare it with"}
    lines, words = made["kto"]
    assert lines == [
        {"prompt": ASKED, "completion": [LONG], "label": False},
        {"prompt": ASKED, "completion": [SHORT], "label": True},
        {"prompt": WEATHER, "completion": [leaves], "label": True, **tools},
        {"prompt": WEATHER, "completion": [SHORT], "label": False, **tools},
    ]
    assert homeless.returncode == 2
    kinds = ("preference", "prompt_completion", "unpaired_preference")
    assert {each.name for each in folder.iterdir()} == {f"{kind}.jsonl" for kind in kinds}
    written = (folder / "prompt_completion.jsonl").read_text().splitlines()
    first, second = map(json.loads, written)
    assert first == {"prompt": ASKED, "completion": [SHORT]}
    arguments = second["prompt"][1]["tool_calls"][0]["function"]["arguments"]
    assert (arguments, json.loads(second["tools"])) == ({"at": "tea"}, [TOOL])


async def test_an_answer_with_a_key_in_it_is_not_written(log: Log) -> None:
    """Unless log.scrub is off; what can't be learnt from here is no dataset for others either."""
    name = capture(log, [user("My key is sk-proj-" + "a1B2" * 12)], "Thanks.")
    await log.completion(name)
    await rate(log, name)
    for scrub, fault in ((True, "credential"), (False, None)):
        (found,), after = await log.rated_answers("", 10, Rules({}, "auto", scrub=scrub))
        assert (found.rated.fault, after) == (fault, None)


async def test_pages_end_between_conversations(log: Log) -> None:
    names = [capture(log, [user(f"{number}?")], f"{number}.") for number in range(5)]
    await log.completion(names[-1])
    for name in names:
        await rate(log, name)
    found: list[str] = []
    after: str | None = ""
    pages = 0
    while after is not None:
        page, after = await log.rated_answers(after, 2, Rules({}, "auto", scrub=True))
        found += [each.rated.answer for each in page]
        pages += 1
    assert (sorted(found), pages) == (sorted(names), 3)


def test_the_blocks_of_a_message_are_text_for_trl() -> None:
    found = {"type": "search_result", "title": "Tea", "content": [{"type": "text", "text": "A drink."}]}
    asked = [{"role": "user", "content": [found, {"type": "text", "text": "What is tea?"}]}]
    rated: Any = {
        "messages": asked, "tools": [], "reply": SHORT, "reward": 1.0, "comment": None, "correction": None,
        "worse": [], "opposed": [], "obstacle": None,
    }  # fmt: skip
    (example,) = example_lines("prompt_completion", rated, Counter())
    (prompt,) = example.line["prompt"]
    assert prompt["content"] == f"{json.dumps(found, separators=(',', ':'))}\nWhat is tea?"
    (example,) = example_lines("sft", rated, Counter())
    assert example.line["messages"] == [*asked, SHORT], "as the client sent it"
