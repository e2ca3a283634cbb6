"""The serving engine answers criticised questions again, before the trainer starts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.hosts.base import Endpoint
from burnish.learner.teaching import answer_again
from burnish.training.comments import LEAST_TOKENS, SAMPLES, left_to_trainer
from burnish.training.job import CONTINUED, JobDirectory, Sample, TeacherReply
from burnish.training.phases import Phases, read
from tests.learner.conftest import Open, World
from tests.learner.test_sampling import CALL, CALLS, ECHO, TOOLS
from tests.proxy.log.exchanges import capture, rate, user
from tests.support.jobs import job_spec, sample
from tests.support.upstream import Script, Upstream, upstream

TOO_LONG, PLAINLY = "too long", "plain words, please"


def criticised(number: int, comment: str = TOO_LONG, **more: Any) -> Sample:
    return sample(number, good=False, comment=comment, **more)


TWO = (criticised(0), criticised(1, PLAINLY, tools=TOOLS))


def job_of(folder: Path, samples: Iterable[Sample] = TWO, **spec: Any) -> JobDirectory:
    job = JobDirectory(folder / "run_test")
    job.write_job(job_spec(**{"objective": "critique"} | spec), samples)
    return job


@asynccontextmanager
async def serving(
    open_world: Open, script: Script, version: int = 0, **settings: Any
) -> AsyncIterator[tuple[World, Upstream]]:
    """A world whose live version answers by a script."""
    async with upstream(script) as engine:
        world = await open_world(**settings)
        world.swap.route.flip(Endpoint(engine.url, "m", version))
        yield world, engine


async def asked(world: World, job: JobDirectory) -> list[TeacherReply]:
    await answer_again(job, world.swap, Phases(job.phases))
    return sorted(job.teacher_replies(), key=lambda reply: (reply.completion_id, reply.number))


async def test_the_engine_gets_the_comments_and_the_tools_and_nothing_is_logged(
    open_world: Open, tmp_path: Path
) -> None:
    held_out, praised = criticised(2, held_out=True), sample(3, good=True, comment="nice")
    job = job_of(tmp_path, [*TWO, held_out, praised, sample(4, good=False)])
    async with serving(open_world, CALLS) as (world, engine):
        replies = await asked(world, job)
        assert (await world.log.counts())["completions"] == 0
    assert [(reply.completion_id, reply.number) for reply in replies] == [
        (f"cmpl_{number}", draw) for number in range(2) for draw in range(SAMPLES)
    ]
    assert {reply.comments for reply in replies} == {(TOO_LONG, PLAINLY), (PLAINLY, TOO_LONG)}
    assert [reply.reply.get("tool_calls") for reply in replies] == [None] * SAMPLES + [[CALL]] * SAMPLES
    assert all(reply.finished for reply in replies[SAMPLES:])
    bodies = [request.json() for request in engine.requests]
    assert len({body["seed"] for body in bodies}) == len(bodies), "no two draws are equal"
    for body in bodies:
        assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.8, 0.95, LEAST_TOKENS)
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert re.search(r"\?\n\n\((too long; plain words, please|plain words, please; too long)\)$",
                         body["messages"][1]["content"])  # fmt: skip
        assert body.get("tools") == (TOOLS if body["messages"][1]["content"].endswith("too long)") else None)
    in_turn = [question for question, _ in groupby(body["messages"][1]["content"] for body in bodies)]
    assert len(in_turn) == 2, "those of one question follow each other"
    assert [(mark.phase, mark.done, mark.total) for mark in read(job.phases)][-1] == ("answering", 8, 8)
    assert left_to_trainer(job, job.samples()[:2], seed=0) is None


async def test_a_stopped_run_asks_for_the_remaining_replies_with_their_seeds(
    open_world: Open, tmp_path: Path
) -> None:
    whole, stopped = job_of(tmp_path / "whole"), job_of(tmp_path / "stopped")
    async with serving(open_world, ECHO) as (world, engine):
        replies = await asked(world, whole)
        seeds = sorted(request.json()["seed"] for request in engine.requests)
        lines = [f"{reply.model_dump_json()}\n" for reply in replies]
        stopped.teacher.write_text("".join(lines[:3]))
        first = len(engine.requests)
        assert await asked(world, stopped) == replies
        assert sorted(request.json()["seed"] for request in engine.requests[first:]) == seeds[3:]
        stopped.teacher.write_text("".join(lines)[:-9])
        assert await asked(world, stopped) == replies, "a torn line is no reply"
        first = len(engine.requests)
        for job in (stopped, job_of(tmp_path / "rated", objective="mis_po")):
            job.checkpoint.mkdir()
            await answer_again(job, world.swap, Phases(job.phases))
        assert len(engine.requests) == first, "the trainer has begun, or nothing is learnt from comments"


@pytest.mark.parametrize(
    ("version", "samples"),
    [
        (7, TWO),
        (
            0,
            [criticised(0, template={CONTINUED: True}), criticised(1, template={"chat_template": "{{ x }}"})],
        ),
    ],
)
async def test_what_the_engine_cannot_be_asked_is_left_to_the_trainer(
    open_world: Open, tmp_path: Path, version: int, samples: list[Sample]
) -> None:
    job = job_of(tmp_path, samples, parent_version=0 if version == 0 else 3)
    async with serving(open_world, ECHO, version) as (world, engine):
        assert await asked(world, job) == []
        assert not engine.requests
    note = left_to_trainer(job, samples, seed=0)
    assert note and note.startswith("the engine didn't answer again for 2 of 2 comments")


async def test_an_engine_that_is_gone_leaves_it_to_the_trainer(open_world: Open, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    world = await open_world()
    world.swap.route.flip(Endpoint("http://127.0.0.1:9", "m", 0))
    assert await asked(world, job) == []


async def test_a_run_asks_the_engine_before_its_trainer_starts(open_world: Open) -> None:
    async with serving(open_world, ECHO, objective="critique") as (world, _):
        for number in range(4):
            made = capture(world.log, [user(f"Question {number}?")], "A long answer.", adapter_version=0)
            await rate(world.log, made, None, comment=TOO_LONG)
        run = await world.learner.train_now()
        await world.trainer()
        job = world.learner.job(run)
        assert len(job.teacher_replies()) == 4 * SAMPLES
        phases = [phase for phase, _ in groupby(mark.phase for mark in read(job.phases))]
        assert phases[:2] == ["answering", "loading"]
        assert (await world.log.counts())["completions"] == 4
