"""Cells of the bench at once: where each runs, and how all come to an end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from bench.learning.cell import Cell
from bench.learning.measure import measure
from bench.learning.side_by_side import AT_ONCE, side_by_side
from burnish.parts.desktop.demo.running import burnish
from burnish.system.threads import cores
from tests.bench.test_measure import engine_that
from tests.support.execute import execute
from tests.support.patience import within
from tests.support.upstream import upstream

COUNT_CORES = "from burnish.system.threads import cores; print(cores())"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads can't be kept to cores here")
def test_two_share_the_cores_and_so_do_the_programs_that_they_start() -> None:
    both = threading.Barrier(min(AT_ONCE, cores()))

    def measured(name: str) -> tuple[str, int, int]:
        both.wait(within(60))
        counted = execute(sys.executable, "-c", COUNT_CORES)
        return name, cores(), int(counted.stdout)

    found = sorted(side_by_side(measured, ["a", "b"][: both.parties], {}))
    assert [name for name, _, _ in found] == ["a", "b"][: both.parties]
    assert sum(own for _, own, _ in found) == cores()
    assert all(own == started for _, own, started in found)


def test_in_an_engine_of_somebody_elses_one_learns_after_the_other() -> None:
    at_once, most = 0, 0

    def measured(_: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.05)
        at_once -= 1

    assert len(list(side_by_side(measured, range(4), {"BURNISH_UPSTREAM": "http://127.0.0.1:1"}))) == 4
    assert most == 1


@pytest.mark.skipif(cores() < 2, reason="needs two cores")
def test_an_error_in_one_stops_what_the_other_runs(tmp_path: Path) -> None:
    urls, started, ended = list[str](), threading.Event(), list[str]()
    settings = {"BURNISH_UPSTREAM": "http://127.0.0.1:1", "BURNISH_ENGINE": "none", "BURNISH_MODEL": "none"}

    def measured(name: str) -> None:
        if name == "fails":
            assert started.wait(within(60))
            raise ValueError("nothing was learnt")
        try:
            with burnish(tmp_path, settings) as url:
                urls.append(url)
                started.set()
                while True:
                    httpx.get(f"{url}/healthz", trust_env=False)
                    time.sleep(0.05)
        finally:
            ended.append(name)

    with pytest.raises(ValueError, match="nothing was learnt"):
        list(side_by_side(measured, ["runs", "fails"], {}))
    assert ended == ["runs"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(urls[0], trust_env=False)


async def test_what_two_cells_need_of_the_bare_model_is_asked_once(tmp_path: Path) -> None:
    async with upstream(engine_that(lambda asked: "Short.")) as engine:
        settings = {"BURNISH_UPSTREAM": engine.url, "BURNISH_ENGINE": "none", "BURNISH_MODEL": "mock"}

        def measured(cell: Cell) -> None:
            measure(cell, tmp_path / "kept", tmp_path / cell.arm, settings, lambda doing: None)

        cells = [Cell(arm, ("brief",), 0, (2,), held_out=3, widely=False) for arm in ("auto", "auto_words")]
        await asyncio.to_thread(lambda: list(side_by_side(measured, cells, {})))
    # Three held-out questions to the bare model, two to learn from, and of each cell three once more.
    asked = [request for request in engine.requests if request.body and request.json().get("stream")]
    assert len(asked) == 3 + 2 + 2 * 3
