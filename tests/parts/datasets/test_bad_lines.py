"""Files with broken lines: the good ones count, the others are named, and nothing is half done."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from burnish.parts.datasets.files import OWN
from burnish.parts.datasets.importing import FORMATS, read_files
from burnish.parts.datasets.records import READERS, read_record
from burnish.proxy.http.errors import Unprocessable
from burnish.terminal.errors import WrongUsage
from tests.parts.datasets.exports import chat_of_open_webui, langfuse, langsmith, lines
from tests.parts.datasets.test_foreign import whole
from tests.parts.datasets.test_round_trip import address, imported
from tests.support.inprocess import behind
from tests.support.program import call
from tests.support.upstream import completion as completed
from tests.support.upstream import reply

BROKEN = (
    '{"prompt": "Tea?", "completion": "Yes.", "label"',
    "[1, 2]",
    '{"prompt": "Tea?", "completion": "Yes.", "label": "yes"}',
    '{"prompt": "Tea?", "completion": "  ", "label": true}',
    '{"prompt": [{"role": "wizard", "content": "x"}], "completion": "Yes.", "label": true}',
    '{"prompt": "Tea?", "completion": "Yes.", "label": NaN}',
    '{"prompt": "\\ud800", "completion": "Yes.", "label": true}',
)


@pytest.mark.parametrize("odd", ["fifo", "/dev/zero", "/dev/stdin", "folder", "huge"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, odd: str) -> None:
    path = Path(odd) if odd.startswith("/") else tmp_path / odd
    if odd == "fifo":
        os.mkfifo(path)
    elif odd == "folder":
        path.mkdir()
    elif odd == "huge":
        with path.open("wb") as file:
            file.truncate(2 * 1024**3)
    words = "larger than 64 MiB" if odd == "huge" else f"cannot read .*{path.name}"
    with pytest.raises(WrongUsage, match=words):
        read_files([path], None, {})
    for command in (("data", "import", str(path)), ("judge", "--principles", str(path))):
        assert call(*command, stdin="{}").returncode == 2


def rated(number: int) -> str:
    return json.dumps({"prompt": f"What is {number}?", "completion": "A number.", "label": number % 2 == 0})


async def test_a_tenth_of_the_lines_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "kto.jsonl"
    good = [rated(number) for number in range(198)]
    bad = [BROKEN[number % len(BROKEN)] for number in range(22)]
    mixed = [line for ten in range(22) for line in (*good[ten * 9 : ten * 9 + 9], bad[ten])]
    file.write_text("\n".join(mixed) + "\n")
    async with behind(tmp_path, reply(completed())) as (http, _):
        url = address(http)
        tried = await asyncio.to_thread(call, "data", "import", str(file), "--dry-run", url=url)
        nothing = (await http.get("/burnish/records")).json()["data"]
        done = await asyncio.to_thread(call, "data", "import", str(file), url=url)
        again = await imported(http, file)
        given = (await http.get("/v1/feedback", params={"limit": 1000})).json()["data"]
        rows = (await http.get("/burnish/completions", params={"limit": 1000})).json()["data"]
    assert (tried.returncode, nothing) == (0, [])
    assert "would import 198 answers, 198 pieces of feedback" in tried.stdout
    assert "imported 198 answers, 198 pieces of feedback from kto" in done.stdout, done.stderr
    assert "training can use 198 of 198" in done.stdout
    skipped = [each for each in done.stderr.splitlines() if each.startswith("skipped")]
    assert skipped[0].startswith("skipped line 10: it isn't JSON")
    assert skipped[1] == "skipped line 20: it isn't a JSON object"
    assert skipped[2] == "skipped line 30: label must be true or false, or 1 or 0"
    assert (len(skipped), skipped[-1]) == (21, "skipped 2 more lines")
    assert (again["new"], again["known"]) == ({}, {"completion": 198, "feedback": 198})
    assert len(again["skipped"]) == 22
    assert len(given) == len(rows) == 198


async def test_a_line_of_ours_that_was_changed_is_refused_alone(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    async with behind(tmp_path / "one", reply(completed())) as (http, _):
        await imported(http, lines(tmp_path / "seed.jsonl", json.loads(rated(1))))
        completion, feedback = (await http.get("/burnish/records")).json()["data"]
    changes: list[tuple[dict[str, Any], str]] = [
        (completion | {"id": "cmpl_7ZZZZZZZZZ0000000000000000"}, "lies in the future"),
        (completion | {"id": "cmpl_1"}, "id must be cmpl_"),
        (completion | {"surprise": 1}, "unknown member 'surprise'"),
        (completion | {"messages": [{"content": "x"}]}, "a message has no role"),
        (completion | {"outcome": "fine"}, "outcome"),
        (completion | {"prompt_tokens": 2**70}, "int"),
        (feedback | {"reward": 3}, "reward"),
        (feedback | {"completion_id": "cmpl_" + "0" * 26}, "there is no completion"),
        (feedback | {"rater": "a\x1b[2Jb"}, "control characters"),
        ({"object": "completion", "id": 5}, "id must be cmpl_"),
    ]
    lines(file, *(each for each, _ in changes), completion, feedback)
    async with behind(tmp_path / "two", reply(completed())) as (http, _):
        new = await imported(http, file)
    assert new["new"] == {"completion": 1, "feedback": 1}
    reasons = {each["place"]: each["reason"] for each in new["skipped"]}
    assert len(reasons) == len(changes)
    for number, (_, why) in enumerate(changes, start=1):
        assert why in reasons[f"line {number}"], (number, reasons[f"line {number}"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "nothing in these files"),
        ("hello\nworld\n", "name it with --format (line 1: it isn't JSON"),
        ('{"a": 1}\n{"b": 2}\n', "name it with --format"),
        ('[{"prompt": "x", ', "it isn't JSON"),
    ],
)
def test_a_file_that_is_something_else(tmp_path: Path, content: str, expected: str) -> None:
    file = tmp_path / "x"
    file.write_text(content)
    with pytest.raises(WrongUsage) as refused:
        read_files([file], None, {})
    assert expected in str(refused.value)


SEEDS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {"prompt": "a", "chosen": "b", "rejected": "c"},
    {"prompt": "a", "completion": "b", "label": True},
    *(*langfuse(), *langsmith(), chat_of_open_webui(1)),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@hypothesis.given(data=st.data(), name=st.sampled_from([*FORMATS]))
def test_any_object_is_read_left_out_or_named(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    """Members of real lines are replaced by anything; whatever is read, burnish takes or refuses in words."""
    rows = []
    for seed in data.draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=4)):
        changed = data.draw(st.dictionaries(st.sampled_from([*seed]), JSON, max_size=2))
        rows.append(seed | changed)
    file = lines(tmp_path_factory.getbasetemp() / "any.jsonl", *rows)
    try:
        found = whole(read_files([file], name, {}))
    except WrongUsage as error:
        assert "metric" in str(error)
        return
    places = {f"line {number}" for number in range(1, len(rows) + 1)} | {"the file"}
    assert {each.place for each in found.problems} | {each.place for each in found.lines} <= places
    for line in found.lines:
        try:
            read_record(line.content)
        except Unprocessable as error:
            assert error.message


@hypothesis.given(
    kind=st.sampled_from([*READERS]),
    more=st.dictionaries(st.sampled_from(["id", "messages", "reply", "reward"]), JSON),
)
def test_any_record_is_taken_or_refused_in_words(kind: str, more: dict[str, Any]) -> None:
    with pytest.raises(Unprocessable):
        read_record({"object": kind} | more)
    assert OWN not in FORMATS
