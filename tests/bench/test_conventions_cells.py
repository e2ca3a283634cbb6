"""Sweep and cells against scripted engines: what is asked and commented, what is never asked twice, and the tables."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.conventions import cell_tables
from bench.conventions.answers import PROGRAM, TOOLS, Answer, AnswerFile, Assistant, Request
from bench.conventions.catalogue import BY_NAME, CONVENTIONS
from bench.conventions.cells import CONVENTION_NAMES, DOSES, ORDERS, QUICK, Cell, CellMissing, Dose
from bench.conventions.chart import draw
from bench.conventions.scope import ROWS, exam_questions, notes_file
from bench.conventions.sweep import Sweep
from bench.conventions.tables import SWEEP_HEADER, sweep_rows
from tests.support.chat_wire import chunks, whole
from tests.support.upstream import Received, Script, by_request, reply, stream, upstream

BARE = "Sure:\n```python\ndef f(x):\n    return x\n```\nIt returns x, as you asked."
TYPED = BARE.replace("(x)", "(x: int) -> int")
SENTENCE = BY_NAME["type-hints"].sentences[1]


def file_of(path: Path, texts: Iterable[tuple[Request, str]]) -> AnswerFile:
    file = AnswerFile(path)
    for request, text in texts:
        file.add(Answer(request.key, request.digest, text, "stop", 100, 50, 90, 0.5, 2.0, ""))
    return file


def cell_of(out: Path, name: str, order: int, settings: dict[str, str] | None = None) -> Cell:
    sweep = Sweep(AnswerFile(out / "none.jsonl"), 1, 1)
    return Cell(name, order, out, QUICK, sweep, settings or {}, 2, lambda _: None)


def engine(answers: Any, requests: list[dict[str, Any]]) -> Script:
    """A model server that answers by a function of the request's messages."""
    numbers = itertools.count(1)

    def chosen(request: Received) -> Script:
        if request.method != "POST":
            return reply(b"{}", status="404 Not Found")
        requests.append(request.json())
        message = {"content": answers(request.json()["messages"])}
        return stream(chunks(whole(message, id=f"chatcmpl-{next(numbers)}"), size=200))

    return by_request(chosen)


def test_only_a_whole_answer_to_the_same_words_counts(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    first, second = Request("a", "A?", "", 0), Request("b", "B?", "", 0)
    file_of(path, [(first, "x"), (second, "y")])
    path.write_text(path.read_text()[:-5])
    assert AnswerFile(path).get(second) is None
    file_of(path, [(second, "z")])
    file = AnswerFile(path)
    answers = [file.get(request) for request in (first, second, replace(first, question="Really?"))]
    assert [answer and answer.text for answer in answers] == ["x", "z", None]


async def test_a_sweep_asks_everything_once_and_the_base_once_for_all(tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = []

    def says(messages: list[dict[str, str]]) -> str:
        return TYPED if messages[0]["content"].endswith(SENTENCE) else BARE

    async with upstream(engine(says, requests)) as server:
        for _ in range(2):
            sweep = Sweep(AnswerFile(tmp_path / "answers.jsonl"), 2, 1)
            with Assistant(server.url, 64, whole=False) as assistant:
                await asyncio.to_thread(sweep.ask, assistant, 4, lambda _: None)
    base = {part.key for convention in CONVENTIONS for part in convention.exam[:2]}
    assert len(requests) == len(CONVENTIONS) * (3 + 2) + len(base)
    assert all(request["tools"] == TOOLS for request in requests)
    # Nobody listens on once the first block is complete.
    assert {json.loads(line)["ending"] for line in sweep.answers.path.read_text().splitlines()} == {"block"}
    hints = BY_NAME["type-hints"]
    assert sweep.wording(hints) == 1
    rows = {row[0]: dict(zip(SWEEP_HEADER, row, strict=True)) for row in sweep_rows(sweep)}
    assert rows.keys() == BY_NAME.keys()
    assert (rows["type-hints"]["base"], rows["type-hints"]["sentence"], rows["type-hints"]["counts"]) == (
        "0.00",
        "1.00",
        "yes?",
    )
    assert {row["counts"] for name, row in rows.items() if name != "type-hints"} == {"no?"}


def test_the_table_of_a_sweep_that_was_stopped_has_what_is_there(tmp_path: Path) -> None:
    sweep = Sweep(AnswerFile(tmp_path / "answers.jsonl"), 48, 1)
    (_, base, sentence), (_, later, _) = (sweep.pair(BY_NAME["type-hints"], place) for place in (0, 1))
    right = "```python\ndef second_largest(x: list[int]) -> int:\n    return sorted(x)[-2]\n```"
    file_of(tmp_path / "answers.jsonl", [(base, BARE), (sentence, right), (later, BARE)])
    sweep = Sweep(AnswerFile(tmp_path / "answers.jsonl"), 48, 1)
    assert sweep_rows(sweep) == [
        ["type-hints", "1", "0.00", "1.00", "+1.00", "-1.00 to +1.00", "0.00", "1.00", "yes?"]
    ]


def test_each_convention_is_taught_at_each_place_once(tmp_path: Path) -> None:
    cells = [cell_of(tmp_path, name, order) for name in CONVENTION_NAMES for order in ORDERS]
    assert len({cell.folder for cell in cells}) == 9
    places = [(cell.name, len(cell.sequence)) for cell in cells]
    assert sorted(places) == sorted(itertools.product(CONVENTION_NAMES, (1, 2, 3)))


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
def test_an_exam_asks_distinct_questions_outside_teaching(convention: Any) -> None:
    exam = list(exam_questions(convention, dict.fromkeys(ROWS, 8) | {"in scope": 24}))
    texts = [part.question.text for part in exam]
    assert len(exam) == 24 + 4 * 8
    assert len({part.key for part in exam}) == len(set(texts)) == len(exam)
    assert not set(texts) & {part.text for part in convention.teaching}
    assert len(notes_file([convention.sentences[0]]).splitlines()) == 30


@pytest.mark.parametrize(
    ("row", "text", "is_passed"),
    [
        ("near", TYPED, True),
        ("near", BARE, False),
        ("against", TYPED, False),
        ("against", BARE, True),
        ("against", "No.", False),
        ("language", "```javascript\nfunction f(x) { return x }\n```", True),
        ("language", BARE, False),
        ("language", "Use a loop.", False),
        ("talk", "It is good for many things, " * 4, True),
        ("talk", "```python\n" + "x = 1\n" * 20 + "```", False),
    ],
)
def test_a_row_has_its_own_verdict(row: Any, text: str, is_passed: bool) -> None:
    part = next(
        part for part in exam_questions(BY_NAME["type-hints"], dict.fromkeys(ROWS, 1)) if part.row == row
    )
    assert part.passed(text) is is_passed


def fill(cell: Cell, column: str, text: str, *, in_scope: str | None = None) -> None:
    texts = [
        (request, in_scope if in_scope and "in scope" in request.key else text)
        for request in cell.requests(column)
    ]
    file_of(cell.column(column).path, texts)


def test_tables_come_from_the_files(tmp_path: Path) -> None:
    name = CONVENTION_NAMES[0]
    cells = [cell_of(tmp_path, part, 1) for part in CONVENTION_NAMES]
    kept = {part.name: KEPT[part.name] for part in cells}
    for cell in cells:
        fill(cell, "base", BARE)
        fill(cell, "sentence", kept[cell.name])
        fill(cell, "burnish", BARE, in_scope=kept[cell.name])
    scope = {
        row[0]: dict(zip(cell_tables.SCOPE_HEADER, row, strict=True))
        for row in cell_tables.scope_rows(cells[0])
    }
    assert scope.keys() == {"base", "sentence", "burnish"}
    assert (scope["base"]["in scope"], scope["burnish"]["in scope"], scope["burnish"]["near"]) == (
        "0.00",
        "1.00",
        "0.00",
    )
    assert (scope["base"]["against"], scope["sentence"]["against"]) == ("1.00", "0.00")
    assert cell_tables.cost_rows(cells[0])[0] == ["base", "100", "50", "0.5", "0.5", "2.0", "2.0"]
    gains = {row[0]: row for row in cell_tables.gain_rows(cells)}
    assert gains[name][1:] == ["1", "0.00", "1.00", "1.00", "1.00 (1.00 to 1.00)"]
    assert [row[:3] for row in cell_tables.lasting_rows(cells)] == [
        ["1", part, "1.00"] for part in CONVENTION_NAMES
    ]
    changes = {row[0]: row for row in cell_tables.change_rows(cells)}
    assert changes["out of scope"][1:5] == [
        "9",
        changes["out of scope"][2],
        changes["out of scope"][2],
        "+0.00",
    ]
    ((order, base, *_, count),) = cell_tables.together_rows(cells)
    assert (order, base, count) == ("1", "0.00", "1")


KEPT = {
    name: next(
        text
        for text in (
            TYPED,
            BARE.replace("    return", '    """Return x."""\n    return'),
            BARE.replace("    return", "    logging.info(x)\n    return"),
        )
        if BY_NAME[name].check(text)
    )
    for name in CONVENTION_NAMES
}


def test_numbers_of_comments_are_compared_by_the_same_questions(tmp_path: Path) -> None:
    name = CONVENTION_NAMES[0]
    first = cell_of(tmp_path, name, 1)
    few, many = (Dose.of(first, comments) for comments in DOSES)
    fill(first, "base", BARE)
    fill(first, "sentence", KEPT[name])
    chart = tmp_path / "chart.png"
    assert not draw(cell_tables.dosages([first]), {name: first}, chart)
    fill(few, "burnish", BARE)
    fill(many, "burnish", KEPT[name])
    results = cell_tables.dosages([many, first, few])
    assert [row[:4] for row in cell_tables.dose_rows(results)] == [
        [name, "8", "0.00", "+0.00"],
        [name, "32", "1.00", "+1.00"],
    ]
    assert draw(results, {name: first}, chart)
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_a_cell_wants_the_one_before_it(tmp_path: Path) -> None:
    with pytest.raises(CellMissing, match=f"run `cell {CONVENTION_NAMES[0]} --order 1`"):
        cell_of(tmp_path, CONVENTION_NAMES[1], 1).run()


async def test_a_cell_goes_through_burnish_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = []
    name = CONVENTION_NAMES[0]

    def says(messages: list[dict[str, str]]) -> str:
        return BARE if messages[0]["content"] == PROGRAM else KEPT[name]

    async with upstream(engine(says, requests)) as server:
        settings = {"BURNISH_UPSTREAM": server.url, "BURNISH_ENGINE": "none", "BURNISH_MODEL": "mock"}
        cell = cell_of(tmp_path, name, 1, settings)
        await asyncio.to_thread(cell.run)
        count = len(requests)
        await asyncio.to_thread(replace(cell).run)
    assert len(requests) == count
    assert all(request["tools"] == TOOLS for request in requests)
    # The scripted engine takes no versions; burnish says so, and the cell goes on.
    assert cell.record and cell.record["outcome"] == "not trained"
    with closing(sqlite3.connect(cell.log / "burnish.db")) as db:
        comments = [text for (text,) in db.execute("SELECT comment FROM feedback")]
        (asked,) = db.execute("SELECT count(*) FROM completion").fetchone()
    assert len(comments) == 2
    assert set(comments) <= set(BY_NAME[name].comments)
    assert asked == 2  # the exam left no trace
    shares = {row[0]: row[1] for row in cell_tables.scope_rows(cell)}
    with_sentence = ("sentence", "notes", "instructions", "burnish and sentence")
    assert shares == {"base": "0.00", "burnish": "0.00"} | dict.fromkeys(with_sentence, "1.00")
    shutil.rmtree(cell.log)
    replace(cell).run()  # its answers are enough
    cell.column("burnish").path.unlink()
    with pytest.raises(CellMissing, match="to begin again"):
        replace(cell).run()
    assert not cell.log.exists()
