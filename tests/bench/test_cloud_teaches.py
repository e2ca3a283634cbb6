"""The cloud's double before a real burnish: its answers are rated by their length, and the ratings can teach."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.cloud_teaches import ANSWERS, CLOUD_MODEL, cloud, rate, report, settings
from burnish.config.config import load_config
from burnish.parts.desktop.demo.outcome import HELD_OUT, SAMPLES, Exam
from burnish.parts.desktop.demo.questions import BRIEFLY, QUESTIONS
from burnish.parts.desktop.demo.trial import shown
from burnish.parts.desktop.demo.user import AnsweredQuestion, User
from tests.support.inprocess import calling, logged
from tests.support.program import NOBODY


async def test_half_of_its_answers_please_and_all_ratings_can_teach(tmp_path: Path) -> None:
    asked = list(ANSWERS)[:6]
    with cloud() as url, shown("test", quiet=True) as screen:
        tables = load_config(environment=settings(url, 0)).model_dump()["upstreams"]
        async with calling(tmp_path, upstream=NOBODY, upstreams=tables) as client:
            with User(str(client.base_url).rstrip("/"), BRIEFLY, model=CLOUD_MODEL) as user:
                good = await asyncio.to_thread(rate, user, asked, screen)
            records = await logged(client)
    assert good == 3
    assert {each["prompt"]: each["rating"] for each in records} == {
        question: -1.0 if place % 2 else 1.0 for place, question in enumerate(asked)
    }
    assert all(each["usable"] and each["upstream_table"] == "cloud" for each in records)


def test_enough_questions_are_left_to_examine_the_local_model_on() -> None:
    assert ANSWERS.keys() <= set(QUESTIONS)
    assert len(set(QUESTIONS) - ANSWERS.keys()) >= HELD_OUT


def test_the_report_compares_answers_to_the_same_questions() -> None:
    def exam(short: int) -> Exam:
        answers = [
            AnsweredQuestion(
                f"Is {place} odd?", "No, it is even." if place < short else "Well. " * 60, True, ""
            )
            for place in range(HELD_OUT)
        ]
        return Exam(answers * SAMPLES, facts=43)

    lines = report(exam(10), exam(30))
    assert "0.25 → 0.75 (change +0.50, 95 % interval +0.3" in lines[1]
    assert lines[-1].endswith(": 43 → 43")
