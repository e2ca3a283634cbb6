"""The hostile bench: what its figures mean, that what it sends is HTTP, and one small case for real."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httptools
import pytest

from bench.hostile.answers import ANSWERS
from bench.hostile.cases import CASES, Case
from bench.hostile.crowd import CHAT, PROBE, RATING, Seen, seen
from bench.hostile.measure import Times, measured
from bench.hostile.verdict import Figures, missed, others, row
from tests.support.raw_server import OK, says, server

QUIET = others([Seen(CHAT, n, 0.004, 0.001, 200) for n in range(100)], 0, 100)
KEPT = Figures(
    case="a case",
    took_s=1,
    finished=True,
    statuses=(200,),
    allowed=True,
    before_bytes=80e6,
    peak_bytes=300e6,
    after_bytes=130e6,
    children_bytes=0,
    children=(),
    quiet=QUIET,
    attacked=QUIET._replace(p99_s=0.009, slowest_probe_s=0.25, slowest_rating_s=1.0),
    settled=QUIET,
    marked="complete 200",
    logged=True,
    stopped_s=5,
    restarted_s=10,
    rated_s=1,
)
SMALL = Times(share=0.002, quiet_s=0.5, limit_s=20, settle_s=0.3)
UNANSWERED = ("slow heads", "stalled uploads", "aborted bodies of own routes")
BY_NAME = {case.name: case for case in CASES}


def test_what_others_saw_is_what_was_open_meanwhile() -> None:
    exchanges = [
        Seen(CHAT, 0.0, 1.0, 0.0, 200),  # over before
        Seen(CHAT, 9.0, 2.0, 0.5, 200),
        Seen(CHAT, 12.0, 0.2, 0.0, 503),
        Seen(RATING, 11.0, 30.0, 0.0, 0),
        Seen(PROBE, 11.0, 0.5, 0.25, 200, degraded=True),
        Seen(PROBE, 13.0, 0.125, 0.125, 200),
        Seen(CHAT, 20.0, 9.0, 0.0, 200),  # begins afterwards
    ]
    found = others([seen(each.line()) for each in exchanges], 10.0, 20.0)
    assert (found.chats, found.failed, found.degraded) == (2, 2, 1)
    assert (found.p50_s, found.p99_s, found.p99_wall_s) == (1.5, 1.5, 2.0)
    assert (found.slowest_rating_s, found.slowest_probe_s, found.probe_s) == (30.0, 0.25, 0.25)


def test_a_case_at_every_limit_keeps_them() -> None:
    assert missed(KEPT) == []
    assert row(KEPT).splitlines()[0].endswith("  -")


@pytest.mark.parametrize(
    ("limit", "changed"),
    [
        ("time", {"finished": False}),
        ("answer", {"allowed": False}),
        ("memory", {"peak_bytes": 301e6}),
        ("left", {"after_bytes": 131e6}),
        ("pause", {"settled": QUIET._replace(slowest_probe_s=0.26)}),
        ("others", {"attacked": QUIET._replace(p99_s=0.0091)}),
        ("failed", {"settled": QUIET._replace(failed=1)}),
        ("rating", {"settled": QUIET._replace(slowest_rating_s=1.1)}),
        ("log", {"logged": False}),
        ("stop", {"stopped_s": 5.1}),
        ("stop", {"stopped_s": None}),
        ("restart", {"restarted_s": None}),
        ("rated", {"rated_s": None}),
        ("rated", {"rated_s": 1.1}),
    ],
)
def test_each_limit_can_be_missed(limit: str, changed: dict[str, Any]) -> None:
    assert missed(replace(KEPT, **changed)) == [limit]


def test_a_log_that_is_stuck_for_seconds_must_be_trouble_in_healthz() -> None:
    stuck = replace(KEPT, attacked=QUIET._replace(slowest_rating_s=7))
    assert missed(stuck) == ["rating", "told"]
    assert missed(replace(stuck, settled=QUIET._replace(degraded=1))) == ["rating"]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_http_and_whole_unless_it_breaks_off(name: str) -> None:
    answer, complete = ANSWERS[name](0.002), []

    class Reader:
        def on_message_complete(self) -> None:
            complete.append(parser.get_status_code())

    parser = httptools.HttpResponseParser(Reader())
    parser.feed_data(answer.wire)
    assert (200 in complete) is not answer.closes


def test_bombs_and_calls_have_the_size_that_they_are_named_for() -> None:
    assert 10e6 < len(ANSWERS["calls"](1).wire) < 14e6
    wire = ANSWERS["gzip-bomb"](0.1).wire
    unpacked = zlib.decompress(wire.partition(b"\r\n\r\n")[2], wbits=31)
    assert len(wire) < 2e5
    assert len(unpacked) > 1e8


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in UNANSWERED], ids=lambda case: case.name
)
async def test_a_client_sends_requests_that_a_server_can_read(case: Case) -> None:
    async with server(says(OK, stays=False)) as upstream:
        assert set(await case.prepare("hostile/ordinary/0.001", 0.001)(upstream.url)) == {200}


async def test_a_small_case_against_a_real_burnish(tmp_path: Path) -> None:
    case = replace(BY_NAME["calls, messages"], allowed=frozenset((502,)))
    found = await measured(case, SMALL, tmp_path)
    assert (found.statuses, found.finished, found.logged, found.marked) == (
        (200,),
        True,
        True,
        "complete 200",
    )
    assert "answer" in missed(found)  # because this case allows nothing but 502
    assert {"time", "failed", "log", "stop", "restart", "rated"}.isdisjoint(missed(found)), row(found)
    assert found.peak_bytes >= found.before_bytes > 30e6
    assert found.quiet.chats > 5 < found.attacked.chats
    assert 0 < found.quiet.p50_s <= found.quiet.p99_s
