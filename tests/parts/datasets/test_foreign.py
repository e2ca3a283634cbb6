"""The exports of other programs: what is told from them, and what isn't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from burnish.parts.datasets.importing import FileRecords, read_files
from burnish.parts.datasets.records import read_record
from burnish.parts.datasets.to_records import Range
from burnish.proxy.records import Completion
from burnish.terminal.errors import WrongUsage
from tests.parts.datasets.exports import (
    chat_of_open_webui,
    feedback_of_open_webui,
    langfuse,
    langsmith,
    lines,
)

CORRECTION = "A cup of tea."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.jsonl"


def read(path: Path, *objects: Any, metrics: dict[str, Range | None] | None = None) -> FileRecords:
    found = whole(read_files([lines(path, *objects)], None, metrics or {}))
    for line in found.lines:
        read_record(line.content)  # as burnish takes it
    return found


def whole(records: FileRecords) -> FileRecords:
    """Read the lines, with which what was left out is complete."""
    return records._replace(lines=[*records.lines])


def answers(found: FileRecords) -> list[dict[str, Any]]:
    return [each.content for each in found.lines if each.content["object"] == "completion"]


def said(found: FileRecords) -> list[dict[str, Any]]:
    return [each.content for each in found.lines if each.content["object"] == "feedback"]


def texts(answer: dict[str, Any]) -> list[Any]:
    return [each["content"] for each in (*answer["messages"], answer["reply"])]


def test_a_score_of_a_trace_is_about_what_the_model_saw_last(path: Path) -> None:
    found = read(path, *langfuse())
    (answer,), (rating,) = answers(found), said(found)
    assert (found.format, texts(answer)) == ("langfuse", ["Be brief.", "What is tea?", "A drink."])
    assert (answer["imported_from"], answer["agent"]) == ("langfuse", "langfuse")
    assert (answer["model_served"], answer["caller"]) == ("gpt", "langfuse:ann")
    assert answer["created_at"] == 1777629601.0
    assert (rating["reward"], rating["scale"], rating["rater"]) == (1.0, "binary", "langfuse")
    assert rating["completion_id"] == answer["id"]
    assert found.left_out == {"generations and traces without a score": 1}


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ({"dataType": "NUMERIC", "value": 0.25}, {"reward": -0.5, "scale": "scalar"}),
        ({"dataType": "NUMERIC", "value": 4}, {"reward": 0.5, "scale": "likert"}),
        ({"source": "EVAL", "authorUserId": "x"}, {"source": "judge", "weight": 1.0, "rater": "langfuse:x"}),
        ({"dataType": "TEXT", "value": None, "stringValue": "Short!"}, {"comment": "Short!", "reward": None}),
        ({"dataType": "CORRECTION", "value": CORRECTION}, {"correction": CORRECTION, "reward": None}),
        ({"traceId": None, "sessionId": "s1"}, {"scope": "conversation", "reward": 1.0}),
    ],
)
def test_every_kind_of_score(path: Path, score: dict[str, Any], expected: dict[str, Any]) -> None:
    (rating,) = said(read(path, *langfuse(**score)))
    assert {name: rating[name] for name in expected} == expected


def test_a_trace_with_everything_in_it_says_the_same(tmp_path: Path) -> None:
    trace, first, last, _, score = langfuse()
    apart = read(tmp_path / "apart", trace, first, last, score)
    parts: dict[str, Any] = {"observations": [first, last], "scores": [score]}
    for whole in (trace | parts, {"trace": trace} | parts, {"data": [trace | parts], "meta": {"page": 1}}):
        together = read(tmp_path / "together", whole)
        assert [each.content for each in together.lines] == [each.content for each in apart.lines]
    table = read(tmp_path / "table", trace | {"scores": {"thumb": [1]}})
    assert texts(answers(table)[0]) == ["What is tea?", "A drink."]
    assert said(table)[0]["reward"] == 1.0


def test_several_metrics_are_not_mixed(path: Path) -> None:
    *_, score = rows = langfuse()
    toxic = score | {"id": "s2", "name": "toxicity", "value": 0.9}
    with pytest.raises(WrongUsage, match=r"thumb \(1\), toxicity \(1\).*--metric NAME"):
        read(path, *rows, toxic)
    one = read(path, *rows, toxic, metrics={"thumb": None})
    assert [each["reward"] for each in said(one)] == [1.0]
    assert one.left_out["values of another metric (toxicity)"] == 1
    low = read(path, *rows, toxic, metrics={"toxicity": Range(1, 0)})
    assert [round(each["reward"], 6) for each in said(low)] == [-0.8]


def test_a_metric_of_an_unknown_range_is_left_out_with_what_to_do(path: Path) -> None:
    found = read(path, *langfuse(value=37, dataType="NUMERIC"))
    assert not found.lines
    (why,) = (each for each in found.left_out if "thumb" in each)
    assert "values from 37 to 37" in why and "--metric thumb=WORST..BEST" in why
    given = read(path, *langfuse(value=37, dataType="NUMERIC"), metrics={"thumb": Range(0, 100)})
    assert said(given)[0]["reward"] == pytest.approx(-0.26)


def test_feedback_of_open_webui_and_the_chat_itself_are_the_same_rating(tmp_path: Path) -> None:
    feedback = read(tmp_path / "feedback", feedback_of_open_webui("-1"))
    chat = read(tmp_path / "chat", chat_of_open_webui(-1))
    assert feedback.format == chat.format == "open-webui"
    (answer,), (rating,) = answers(feedback), said(feedback)
    assert texts(answer) == ["Be brief.", "Hello", "Hi!", "What is tea?", "A long story about tea."]
    assert (rating["reward"], rating["comment"]) == (-1.0, "too verbose. Shorter.")
    assert rating["rater"] == "open-webui:u1"
    assert answers(chat) == [answer]
    assert chat.left_out == {"answers without a rating": 2}


@pytest.mark.parametrize(("rating", "better"), [(1, "A long story about tea."), (-1, "A drink.")])
def test_the_arena_of_open_webui_is_a_preference(path: Path, rating: int, better: str) -> None:
    found = read(path, feedback_of_open_webui(rating, ["b"]))
    replies = {each["id"]: each["reply"]["content"] for each in answers(found)}
    (preference,) = (each for each in said(found) if each["preferred_over"])
    assert replies.pop(preference["completion_id"]) == better
    assert [*replies] == [preference["preferred_over"]]


def test_feedback_of_langsmith_is_about_the_llm_in_the_chain(path: Path) -> None:
    found = read(path, *langsmith())
    (answer,), (rating,) = answers(found), said(found)
    assert answer["messages"] == ({"role": "user", "content": "What is tea?"},)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"tea"}'}}
    assert answer["reply"]["tool_calls"] == [call]
    assert (rating["reward"], rating["comment"], rating["rater"]) == (-1.0, "No.", "langsmith:ann")
    judged = read(path, *langsmith(feedback_source={"type": "model"}, correction={"answer": CORRECTION}))
    assert (said(judged)[0]["source"], said(judged)[0]["correction"]) == ("judge", CORRECTION)
    runs_only = read(path, *(each | {"feedback_stats": {"k": {"n": 1}}} for each in langsmith()[:1]))
    assert not runs_only.lines and any("feedback_stats" in each for each in runs_only.left_out)


def test_blocks_of_anthropic_in_langchain_s_messages_are_calls(path: Path) -> None:
    rows = langsmith()
    ai = rows[1]["outputs"]["generations"][0][0]["message"]["kwargs"]
    thought, call = (
        {"type": "thinking", "thinking": "Hm"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    )
    ai["content"] = [thought, {"type": "text", "text": "I look."}, call]
    (answer,) = answers(read(path, *rows))
    assert answer["reply"]["content"] == "I look."
    assert answer["reply"]["reasoning_content"] == "Hm"
    assert [each["function"]["name"] for each in answer["reply"]["tool_calls"]] == ["look"]


def test_an_unknown_format_is_refused_with_those_that_there_are(path: Path) -> None:
    with pytest.raises(WrongUsage, match="no format 'csv' to import: expected one of jsonl, sft, dpo"):
        read_files([path], "csv", {})


def test_no_version_of_ours_is_blamed(path: Path) -> None:
    for objects in (langfuse(), [chat_of_open_webui(1)], langsmith()):
        for each in answers(read(path, *objects)):
            record = read_record(each)
            assert isinstance(record, Completion)
            assert (record.served.adapter_version, record.served.base_digest) == (None, None)
            assert record.served.imported_from
