"""Whatever clients send, the program's log keeps what came before, and nobody waits for a traceback."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.config.config import Config
from burnish.proxy.program_log import kept
from burnish.proxy.rate_limited import FEW, FIRST_SPAN_S, LONGEST_SPAN_S, RateLimited
from tests.support.inprocess import calling

logger = logging.getLogger("burnish.tests.rate_limited")
SECRET = "AIza-the-key-of-a-client"


class Target(logging.Handler):
    """Remembers what was written, and by which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.threads: list[threading.Thread] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        self.threads.append(threading.current_thread())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def limited(target: Target, clock: Clock) -> Iterator[RateLimited]:
    handler = RateLimited(target, clock=clock)
    logger.addHandler(handler)
    logger.setLevel("DEBUG")
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)
    logger.propagate = True
    handler.close()


def test_a_few_of_a_kind_and_then_their_number(limited: RateLimited, target: Target, clock: Clock) -> None:
    def warn(number: int) -> None:
        logger.warning("odd request %d", number)

    for number in range(100):
        warn(number)
    logger.error("another kind")
    assert target.lines == [*(f"odd request {number}" for number in range(FEW)), "another kind"]
    clock.now = FIRST_SPAN_S
    warn(100)
    skipped = f"{100 - FEW} more like this one: odd request 0"
    assert target.lines[-2:] == [skipped, "odd request 100"], "a line of code is a kind"


def test_what_burnish_says_by_itself_is_never_left_out(limited: RateLimited, target: Target) -> None:
    for level in (logging.DEBUG, logging.INFO):
        for _ in range(100):
            logger.log(level, "event")
    assert len(target.lines) == 200


@given(st.lists(st.integers(0, 2 * round(LONGEST_SPAN_S)), max_size=60), st.integers(1, 40))
def test_every_record_is_written_or_counted(pauses_s: list[int], burst: int) -> None:
    clock, target = Clock(), Target()
    handler = RateLimited(target, clock=clock)
    for pause_s in pauses_s:
        clock.now += pause_s
        for _ in range(burst):
            handler.handle(logging.LogRecord("burnish", logging.WARNING, "file", 1, "odd", (), None))
    handler.close()
    left_out = [int(line.partition(" ")[0]) for line in target.lines if line != "odd"]
    assert target.lines.count("odd") + sum(left_out) == burst * len(pauses_s)


def test_an_attack_of_a_day_writes_little(limited: RateLimited, target: Target, clock: Clock) -> None:
    for minute in range(24 * 60):
        clock.now = minute * 60.0
        for _ in range(FEW + 1):
            logger.warning("odd")
    assert len(target.lines) < 35 * (FEW + 1)
    quiet_for_s = 2 * LONGEST_SPAN_S
    clock.now += quiet_for_s
    target.lines.clear()
    logger.warning("odd")
    clock.now += LONGEST_SPAN_S
    for _ in range(FEW):
        logger.warning("odd")
    assert target.lines.count("odd") == FEW + 1, "after a quiet time it is as at first"


def raised(text: str, fail: Callable[[str], object]) -> None:
    try:
        fail(text)
    except ValueError:
        logger.exception("unexpected", extra={"query": f"key={SECRET}".encode()})


def fail(text: str) -> None:
    raise ValueError(text)


def test_a_traceback_is_written_by_another_thread_without_the_query(limited: RateLimited, target: Target):
    for number in range(FEW + 10):
        raised(f"{number} {SECRET}", fail)
    raised("", int)
    raised("x" * 10**6, fail)
    limited.close()
    traces = [line for line in target.lines if "Traceback" in line]
    assert len(traces) == FEW + 1, "where it was raised is a kind"
    assert all("ValueError" in trace and SECRET not in trace for trace in traces)
    assert threading.current_thread() not in target.threads[: len(traces)]
    assert target.lines[-1] == "11 more like this one: unexpected"


def test_a_traceback_with_what_a_client_sent_is_cut(limited: RateLimited, target: Target) -> None:
    raised("x" * 10**6, fail)
    limited.close()
    assert len(target.lines[0]) < 20_000


def test_a_file_that_fails_while_a_thread_writes_blocks_nobody(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path)
    config.program_log.mkdir()
    with kept(config):
        for number in range(200):
            raised(str(number), fail)
            logger.warning("and this")


async def test_a_flood_of_errors_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: object) -> None:
        raise ValueError(SECRET)

    config = Config(data_dir=tmp_path / "data")
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as http:
        with kept(config):
            monkeypatch.setattr("burnish.proxy.log.log.Log._read", broken)
            for _ in range(40):
                answer = await http.get("/burnish/completions", params={"before": SECRET})
                assert answer.status_code == 500
                assert "see its log" in answer.json()["error"]["message"]
        monkeypatch.undo()
    text = config.program_log.read_text()
    assert text.count("Traceback") == FEW
    assert f"{40 - FEW} more like this one: unexpected error on GET /burnish/completions" in text
    assert SECRET not in text
