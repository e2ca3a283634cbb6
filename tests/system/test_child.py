"""A child that answers line by line, and is gone after any failure."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from burnish.system.child import Child, ChildError
from tests.support.patience import within

PROGRAM = """
import json, sys
for line in sys.stdin:
    match json.loads(line):
        case "end":
            sys.exit("no weights")
        case "chatter":
            print("no JSON", flush=True)
        case "wait":
            pass
        case request:
            print(json.dumps({"answer": request}), flush=True)
sys.exit(5)
"""


async def started(folder: Path, grace_s: float = 0.0) -> Child:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return await Child.start((sys.executable, str(program)), log=folder / "child.log", grace_s=grace_s)


async def test_it_answers_one_request_after_the_other(tmp_path: Path) -> None:
    child = await started(tmp_path)
    answers = await asyncio.gather(*(child.ask(n) for n in range(10)))
    assert answers == [{"answer": n} for n in range(10)]
    await child.end()
    assert not child.alive


@pytest.mark.parametrize(
    ("request_", "limit_s", "says"),
    [
        ("end", None, r"^ended \(status 1\)\. Its log .*child\.log ends with: no weights"),
        ("chatter", None, r"^gave an answer that can't be read: .*child\.log is empty"),
        ("wait", 0.01, r"^didn't answer within 0\.01 s; .*child\.log is empty"),
    ],
)
async def test_a_failure_is_told_with_the_end_of_the_log_and_leaves_no_process(
    tmp_path: Path, request_: str, limit_s: float | None, says: str
) -> None:
    child = await started(tmp_path)
    assert await child.ask(1)
    with pytest.raises(ChildError, match=says):
        await child.ask(request_, limit_s)
    assert not psutil.pid_exists(child.pid)
    with pytest.raises(ChildError, match="ended"):
        await child.ask(1)


async def test_a_cancelled_caller_leaves_no_process(tmp_path: Path) -> None:
    child = await started(tmp_path)
    asking = asyncio.ensure_future(child.ask("wait"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not psutil.pid_exists(child.pid)


async def test_a_caller_that_gives_up_in_the_queue_harms_nobody(tmp_path: Path) -> None:
    child = await started(tmp_path)
    first, second = asyncio.ensure_future(child.ask(1)), asyncio.ensure_future(child.ask(2))
    await asyncio.sleep(0)
    second.cancel()
    assert await first == {"answer": 1}
    assert await child.ask(3) == {"answer": 3}
    await child.end()


async def test_ending_it_ends_what_waits_for_its_answer(tmp_path: Path) -> None:
    child = await started(tmp_path)
    asking = asyncio.ensure_future(child.ask("wait"))
    await asyncio.sleep(0)
    await child.end()
    with pytest.raises(ChildError, match="ended"):
        await asking


async def test_it_may_end_in_its_own_way_if_it_has_time(tmp_path: Path) -> None:
    patient, hasty = await started(tmp_path, grace_s=within(30)), await started(tmp_path)
    assert await patient.end() == 5
    assert await hasty.end() < 0
