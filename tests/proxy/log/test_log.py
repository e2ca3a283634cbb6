"""What is captured is found again: contexts, parameters, replies, endings, listings, runs."""

from __future__ import annotations

import gzip
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from burnish.proxy.http.errors import ConfigError, NotFound, Unavailable
from burnish.proxy.ids import run_id
from burnish.proxy.log import Keep, Log
from burnish.proxy.log.runs import Run
from burnish.proxy.records import Answerer, Completion, CompletionEnd, Passthrough, RequestFacts
from tests.proxy.log.exchanges import (
    answered,
    assistant,
    capture,
    exchange,
    locked,
    opened,
    pass_on,
    rate,
    system,
    until,
    user,
)
from tests.support.upstream import events

FUNCTIONS = ({"name": f"tool_{n}", "description": "x" * 300, "parameters": {}} for n in range(4))
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
STREAM = {"chunks": tuple(events("one two", done=False)), "content_type": "text/event-stream"}
PACKED = gzip.compress(answered(assistant("packed")))


async def test_a_completion_comes_back_as_it_was(log: Log):
    asked = RequestFacts(5.0, "chat", "smollm2", "ann", "s", 1, True, "codex", "cmpl_1", "ro_1")
    served = Answerer("http://127.0.0.1:1", "smollm2@v1", 1, "sha256:0", "cloud", "langfuse", in_chat=True)
    params = {"temperature": 0.7, "tools": TOOLS}
    context = (system("Be brief."), user("Name a color."))
    made = exchange([*context], "Blue.", params=params, error="warned")
    ended = made.ended._replace(reward=0.75, rewarded_by="rm_1")
    made = made._replace(asked=asked, served=served, ended=ended, instructions="more words")
    log.capture(made)
    found = await log.completion(made.id)
    counts: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": 2}
    answered = made.ended._replace(response_id="chatcmpl-1", finish_reason="stop", **counts)
    facts: dict[str, Any] = {"messages": context, "params": params, "prompt": "Name a color."}
    facts |= {"reply": assistant("Blue."), "conversation_id": found.conversation_id}
    assert found == Completion(made.id, asked, served, answered, "more words", **facts)
    facts = asked._asdict() | served._asdict() | answered._asdict()
    defaults = RequestFacts._field_defaults | Answerer._field_defaults | CompletionEnd._field_defaults
    # A default proves nothing; test_choices.py has answers with several choices, test_credentials.py some with a key.
    same = [name for name in defaults if facts[name] == defaults[name]]
    assert same == ["choice_count", "holds_credential"]


async def test_reasoning_that_a_client_sends_is_kept_in_its_context(log: Log):
    thinking = {"role": "assistant", "content": "42", "reasoning_content": "let me see"}
    first = capture(log, [user("q")], thinking)
    plain = capture(log, [user("q"), assistant("42"), user("why?")])
    full = capture(log, [user("q"), thinking, user("why?")])
    assert (await log.completion(first)).reply == thinking
    assert (await log.completion(plain)).messages[1] == assistant("42")
    assert (await log.completion(full)).messages[1] == thinking
    assert len({each.conversation_id for each in await log.completions()}) == 1


@pytest.mark.parametrize(
    ("changes", "outcome", "error", "reply"),
    [
        ({}, "complete", None, "Hello!"),
        (STREAM | {"outcome": "cut", "error": "broke off"}, "cut", "broke off", "one two"),
        (STREAM | {"outcome": "cancelled", "error": "client left"}, "cancelled", "client left", "one two"),
        (STREAM, "cut", "the answer ended without a finish_reason", "one two"),
        ({"chunks": (), "status": None, "outcome": "failed", "error": "refused"}, "failed", "refused", None),
        ({"chunks": (b'{"error":', b'"no"}'), "status": 429}, "complete", '{"error":"no"}', None),
        ({"chunks": (PACKED,), "content_encoding": "gzip"}, "complete", None, "packed"),
    ],
)
async def test_an_answer_is_read_however_it_ended(
    log: Log, changes: dict[str, Any], outcome: str, error: str | None, reply: str | None
):
    found = await log.completion(capture(log, [user("a")], **changes))
    assert (found.ended.outcome, found.ended.error) == (outcome, error)
    assert found.reply == (assistant(reply) if reply else None)


async def test_recent_prompts_are_distinct_and_answered(log: Log):
    capture(log, [user("a")], params={"temperature": 0.1})
    capture(log, [user("b")])
    again = capture(log, [user("a")], params={"temperature": 0.9})
    capture(log, [user("c")], status=500, chunks=(b'{"error":"x"}',))
    capture(log, [user("d")], chunks=(), outcome="cancelled")
    found = await log.recent_prompts(10)
    assert [(each.messages[0]["content"], each.id == again) for each in found] == [("a", True), ("b", False)]
    assert found[0].params == {"temperature": 0.9}
    assert len(await log.recent_prompts(1)) == 1


async def test_counts(log: Log):
    made = [capture(log, [user(f"q{number}")]) for number in range(4)]
    for completion_id, reward in zip(made, (1.0, -1.0, 0.0), strict=False):
        await rate(log, completion_id, reward, comment="so so")
    await rate(log, made[3], None, correction="better")
    counts = {"completions": 4, "conversations": 4, "passthrough": 0, "feedback": 4, "ratings": 3, "good": 1}
    assert await log.counts() == counts | {"bad": 1, "comments": 3, "corrections": 1}


async def test_runs(log: Log):
    first = Run(run_id(), 1.0, None, "training", "32 new ratings", None, 32)
    second = Run(run_id(), 2.0, None, "training", "asked for", None, 40)
    await log.start_run(first)
    await log.start_run(second)
    live = Run(first.id, 1.0, 9.0, "live", "better", 3, 32)
    await log.update_run(live)
    assert await log.runs() == [second, live]
    assert await log.runs(limit=1) == [second]
    assert await log.run(first.id) == live
    with pytest.raises(NotFound, match="run_nobody"):
        await log.run("run_nobody")
    with pytest.raises(NotFound):
        await log.update_run(Run("run_nobody", 0.0, None, "failed", "", None, 0))


# The file


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_files_belong_to_their_owner_whatever_the_umask(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        async with opened(tmp_path) as log:
            capture(log, [user("hi")])
            await log.counts()
            folder = tmp_path / "log"
            files = filter(Path.is_file, folder.iterdir())  # a busy machine adds a folder of spilled captures
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in files}
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(before)
    assert modes == {"log.sqlite3": 0o600, "log.sqlite3-wal": 0o600, "log.sqlite3-shm": 0o600}


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="--data-dir"):
        Log.open(tmp_path / "file" / "log.sqlite3")


async def test_after_closing_nothing_is_pretended(tmp_path: Path):
    log = Log.open(tmp_path / "log.sqlite3")
    made = capture(log, [user("hi")])
    log.close()
    log.close()
    with pytest.raises(Unavailable):
        await rate(log, made)
    with pytest.raises(Unavailable):
        await log.completion(made)
    capture(log, [user("too late")])
    assert "1 requests were not logged" in (log.healthy() or "")


# Passthroughs

DAY_S = 86_400.0


async def ids(log: Log) -> list[str]:
    return [each.id for each in await log.passthroughs(limit=1000)][::-1]


async def test_it_is_listed_by_itself_latest_first(log: Log) -> None:
    first = pass_on(log, created_at=5.0)
    completion = capture(log, [user("q")])
    others = [pass_on(log, f"/v1/files/{number}") for number in range(3)]
    assert await ids(log) == [first, *others]
    assert [each.id for each in await log.completions()] == [completion]
    page = await log.passthroughs(limit=2, before_id=others[2])
    assert [each.id for each in page] == others[1::-1]
    assert (await log.passthroughs(limit=1, before_id=others[0]))[0] == Passthrough(
        id=first, created_at=5.0, method="POST", path="/v1/embeddings", model="small",
        upstream="http://127.0.0.1:1", status=200, outcome="complete", error=None, caller="local", session=None,
        request_bytes=20, response_bytes=3000, prompt_tokens=4, completion_tokens=None, first_byte_s=0.1,
        total_s=0.2,
    )  # fmt: skip
    assert (await log.counts())["passthrough"] == 4


async def test_it_goes_when_completions_go(log: Log) -> None:
    old = [pass_on(log, created_at=time.time() - 40 * DAY_S) for _ in range(3000)]
    new = [pass_on(log) for _ in range(3)]
    assert await log.prune(Keep(days=50)) == 0
    assert len(await log.passthroughs(limit=5000)) == len(old) + len(new)
    await log.prune(Keep(days=30))
    assert await ids(log) == new
    await log.prune(Keep(completions=2))
    assert await ids(log) == new[1:]


async def test_who_is_forgotten_goes_whole(log: Log) -> None:
    for _ in range(2500):
        pass_on(log, caller="ann")
    stays = pass_on(log, caller="ben")
    assert await log.forget("ann") == 2500
    assert await ids(log) == [stays]


async def test_it_waits_in_files_while_the_database_is_locked(log: Log, tmp_path: Path) -> None:
    first = pass_on(log)
    await log.passthroughs()
    with locked(tmp_path / "log" / "log.sqlite3"):
        second = pass_on(log)
        completion = capture(log, [user("q")])
        await until(lambda: list((tmp_path / "log").glob("*-spill/*.captures")))
    assert await ids(log) == [first, second]
    assert [each.id for each in await log.completions()] == [completion]
