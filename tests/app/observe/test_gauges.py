"""What a scrape says of versions and training, from a real registry and a real log."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

import burnish
from burnish.adapters.registry import EVENTS, Registry
from burnish.app.observe import Gauges, Observer, metrics_routes
from burnish.proxy.log import Log
from burnish.proxy.log.runs import Run
from tests.app.observe.scrapes import Scrape, parsed
from tests.support.lora import register, write_adapter


async def scraped(log: Log, registry: Registry | None = None, status: dict[str, Any] | None = None) -> Scrape:
    """Scrape over a log and a registry, as an engine that learns has it."""
    observer = Observer(None)
    gauges = Gauges(
        log=log,
        in_flight=observer.in_flight,
        learner_status=lambda: status or {"state": "idle", "run": None},
        live=lambda: registry.live() if registry else None,
        registry=registry,
    )
    transport = httpx.ASGITransport(Starlette(routes=metrics_routes(observer.counts, gauges)))
    async with httpx.AsyncClient(transport=transport, base_url="http://burnish") as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    return parsed(answer.text)


def registered(tmp_path: Path, count: int) -> Registry:
    registry = Registry(tmp_path / "adapters")
    for number in range(count):
        register(registry, write_adapter(tmp_path / f"trained-{number}"), "sha256:00", run_id=f"run_{number}")
    return registry


async def test_versions_verdicts_and_swaps_are_those_of_the_registry(log: Log, tmp_path: Path) -> None:
    registry = registered(tmp_path, 4)
    registry.record(1, "candidate", "better", verdict={"outcome": "passed"})
    registry.record(1, "live", "passed the gate", replaced=0, seconds=0.7)
    registry.record(2, "candidate", "unknown", verdict={"outcome": "undecided"})
    registry.record(2, "live", "by hand", replaced=1, seconds=40.0)
    registry.record(3, "rejected", "worse", verdict={"outcome": "rejected"})
    registry.record(1, "live", "rolled back before swaps were timed", replaced=2)
    found = await scraped(log, registry)
    states = {"candidate": 1, "rejected": 1, "live": 1, "retired": 1}
    assert {state: found.value("burnish_adapter_versions", state=state) for state in states} == states
    assert found.value("burnish_adapter_live_version") == 1
    verdicts = {"passed": 1, "undecided": 1, "rejected": 1}
    assert {each: found.value("burnish_gate_verdicts_total", verdict=each) for each in verdicts} == verdicts
    assert found.value("burnish_swaps_total") == 3
    assert found.value("burnish_swap_duration_seconds_count") == 2
    assert found.value("burnish_swap_duration_seconds_sum") == pytest.approx(40.7)
    below = {"0.5": 0, "1.0": 1, "30.0": 1, "60.0": 2, "+Inf": 2}
    assert {le: found.value("burnish_swap_duration_seconds_bucket", le=le) for le in below} == below


async def test_runs_are_those_of_the_log_by_how_they_ended(log: Log) -> None:
    now = time.time()
    ended: list[tuple[Any, int]] = [("live", 60), ("failed", 5), ("live", 40), ("training", 0)]
    for number, (status, seconds) in enumerate(ended):
        run = Run(f"run_{number}", now, None, "training", "asked", None, 12)
        await log.start_run(run)
        if seconds:
            await log.update_run(replace(run, status=status, ended_at=now + seconds))
    found = await scraped(log, status={"run": {"id": "run_4"}})
    assert found.value("burnish_training_runs_total", outcome="live") == 2
    assert found.value("burnish_training_seconds_total", outcome="live") == pytest.approx(100)
    assert found.value("burnish_training_runs_total", outcome="failed") == 1
    assert found.total("burnish_training_runs_total") == 3, "one is under way"
    assert ("burnish_training_runs_total", frozenset({("outcome", "rejected")})) in found
    assert found.value("burnish_training_running") == 1


async def test_a_damaged_registry_takes_only_its_own_figures_with_it(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = registered(tmp_path, 2)
    history = registry.root / EVENTS
    history.write_bytes(b"nonsense\n" + history.read_bytes())
    found = await scraped(log, registry)
    assert found.value("burnish_build_info", version=burnish.__version__) == 1
    assert not [name for name, _ in found if name.startswith("burnish_adapter")]
    assert "is damaged" in caplog.text


async def test_where_no_versions_are_swapped_nothing_is_said_of_them(log: Log) -> None:
    found = await scraped(log, status={"state": "off", "reason": "engine = none"})
    hidden = ("burnish_adapter", "burnish_gate", "burnish_swap")
    assert not [name for name, _ in found if name.startswith(hidden)]
    assert found.value("burnish_training_running") == 0
