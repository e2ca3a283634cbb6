"""What tools find out becomes feedback on the turn: once, with a small weight, and never over a person's word."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from tests.parts.signals.agent import (
    Agent,
    Call,
    bash,
    codex,
    codex_asks,
    codex_runs,
    coding,
    edit,
    given,
    pytest_says,
    read,
    suite,
    verdicts,
    withheld,
    write,
)
from tests.support.program import call

GREEN = "12 tests passed, 0 failed (pytest)"
RED = "11 tests passed, 1 failed (pytest)"


async def test_tests_that_pass_after_an_edit_rate_the_turn_good(client: httpx.AsyncClient) -> None:
    turn = await Agent(client).turn(edit(), bash("cd /work && pytest -q 2>&1 | tail -5", pytest_says(12)))
    (rating,) = await given(client)
    assert (rating["completion_id"], rating["scope"], rating["rater"]) == (turn[1], "turn", "signals")
    assert (rating["reward"], rating["weight"], rating["tags"]) == (1.0, 0.3, ["signal:tests", GREEN])
    assert (rating["comment"], rating["usable"]) == (None, True)
    shown = (await client.get(f"/burnish/completions/{turn[0]}")).json()
    assert shown["rated"] == "good", "the edit is of the same turn"

    url = str(client.base_url)
    history = await asyncio.to_thread(call, "history", url=url)
    assert f"good ({GREEN}) by signals" in " ".join(history.stdout.split())
    status = await asyncio.to_thread(call, "status", url=url)
    assert "on: 1 ratings by results of tools, 0 withheld" in status.stdout


async def test_the_last_word_on_a_turn_counts(client: httpx.AsyncClient) -> None:
    red, green = suite(11, 1), suite(12)
    turn = await Agent(client).turn(edit(), red, edit(new="x = 3"), green)
    assert await verdicts(client) == [(-1.0, RED), (1.0, GREEN)]
    shown = [(await client.get(f"/burnish/completions/{each}")).json()["rated"] for each in turn]
    assert shown[:4] == ["good"] * 4
    assert (await client.get("/burnish/status")).json()["counts"]["bad"] == 0


FAILED_EDIT = Call("Edit", {"file_path": "/work/a.py"}, "<tool_use_error>no such file</tool_use_error>")
UNCLEAR = {
    "no edit": [suite(12)],
    "red without an edit": [suite(11, 1)],
    "only a test was edited": [edit("tests/test_new.py", "a", "b"), suite(11, 1)],
    "red before": [suite(11, 1), edit(), suite(11, 1)],
    "no tests": [edit(), bash("pytest", "no tests ran in 0.01s")],
    "no such file": [edit(), bash("pytest -q", "Exit code 4\nERROR: file or directory not found: nope")],
    "another command": [edit(), bash("grep -r passed .", "Exit code 1")],
    "no exit code": [edit(), bash("make test", "all fine")],
    "only printed": [edit(), bash("cat notes.txt", "12 passed in 0.12s")],
    "taken back at once": [edit(), bash("git checkout -- app.py", "")],
    "two runners": [edit(), bash("pytest", "12 passed in 0.1s\n\nTests:       12 passed, 12 total")],
    "a failed edit": [FAILED_EDIT, suite(12)],
    "a program of its own": [edit(), bash("./pytest -q", pytest_says(12))],
    "it still runs": [edit(), bash("pytest", "Command running in background with ID: b1")],
}


async def test_what_is_not_clear_gives_nothing(client: httpx.AsyncClient) -> None:
    turns = {name: await Agent(client).turn(*steps) for name, steps in UNCLEAR.items()}
    rated = {each["completion_id"] for each in await given(client)}
    assert [name for name, turn in turns.items() if rated & set(turn)] == []


async def test_exit_codes_of_checks_count_where_an_agent_tells_them(client: httpx.AsyncClient) -> None:
    await Agent(client).turn(edit(), codex("make test", "boom", 2), edit(), codex("make test", "fine"))
    await Agent(client).turn(edit(), codex("mypy .", "error", 1), codex("pytest -q", pytest_says(12)))
    assert await verdicts(client) == [
        (-1.0, "make test ended with exit code 2"),
        (1.0, "make test ended with exit code 0"),
        (-1.0, "mypy ended with exit code 1"),
    ]
    assert await withheld(client) == ["another check of this turn still fails"]


RUNS_ON = "Command still running (session calm-lake, pid 7). Use process (list/poll/log) for follow-up."
OPENCLAW_RUNS = Call("exec", {"command": "pytest"}, RUNS_ON)


def openclaw_asks(action: str, result: str) -> Call:
    return Call("process", {"action": action, "sessionId": "calm-lake"}, result)


async def test_a_command_that_takes_long_is_read_when_it_ends(client: httpx.AsyncClient) -> None:
    begun = codex_runs("pytest", "........\n")
    ends = codex_asks(codex("", pytest_says(12)))
    runs = codex_asks(codex_runs("", "12 passed in "))
    passed = openclaw_asks("poll", "12 passed in 11.40s\n\nProcess exited with code 0.")
    failed = openclaw_asks("poll", "1 failed, 11 passed in 11.40s\n\nProcess exited with code 1.")
    looks = [openclaw_asks(each, "(no new output)\n\nProcess still running.") for each in ("log", "poll")]
    cases = [
        [edit(), begun, runs, codex_asks(codex("", "0.12s"))],
        [edit(), OPENCLAW_RUNS, *looks, failed],
        [edit(), OPENCLAW_RUNS, passed],
        # These give nothing:
        [edit(), begun],
        [edit(), begun, runs],
        [edit(), begun, edit(new="x = 3"), ends],
        [edit(), begun, codex_asks(codex_runs("", "12 passed in 0.12s"), "print('12 passed')"), ends],
        [edit(), ends],
    ]
    for number, steps in enumerate(cases):
        await Agent(client).turn(*steps, says=f"Fix {number}.")
    assert await verdicts(client) == [(1.0, GREEN), (-1.0, RED), (1.0, GREEN)]
    assert await withheld(client) == ["files were edited while the check ran"]


async def test_a_person_is_never_overruled(client: httpx.AsyncClient) -> None:
    turn = await Agent(client).turn(edit(), suite(12))
    await given(client)
    said = {"completion_id": turn[1], "rating": "bad", "scope": "turn"}
    assert (await client.post("/v1/feedback", json=said)).status_code == 201
    for name in turn:
        shown = (await client.get(f"/burnish/completions/{name}")).json()
        assert (shown["rating"], shown["rated"]) == (-1.0, "bad")
    (signal,) = await given(client)
    assert not signal["usable"]
    assert "a person said something of this answer" in signal["reason"]


async def test_a_program_of_somebody_elses_still_weighs_as_it_says(client: httpx.AsyncClient) -> None:
    """Feedback that was sent with the source environment isn't a signal."""
    turn = await Agent(client).turn()
    for said in ({"rating": "bad"}, {"rating": "good", "source": "environment", "rater": "ci"}):
        made = await client.post("/v1/feedback", json={"completion_id": turn[0], **said})
        assert made.status_code == 201
    assert (await client.get(f"/burnish/completions/{turn[0]}")).json()["rating"] == 0.0


async def test_each_signal_counts_once(tmp_path: Path) -> None:
    """Also if the agent asks again, if it forks its session, and over a restart."""
    async with coding(tmp_path) as client:
        agent = Agent(client)
        turn = await agent.turn(edit(), suite(12))
        told = agent.messages[:-1]
        for _ in range(2):
            agent.messages = list(told)
            await agent._step([])
        (rating,) = await given(client)
        assert rating["completion_id"] == turn[1]
        await client.delete(f"/v1/feedback/{rating['id']}")
    async with coding(tmp_path) as client:
        agent.client, agent.messages = client, list(told)
        await agent._step([])
        (rating,) = await given(client)
        assert rating["undone_at"] is not None, "what a person took back doesn't come again"


async def test_nothing_is_read_while_it_is_off_and_it_goes_on_where_it_was(tmp_path: Path) -> None:
    async with coding(tmp_path, signals={"enabled": False}) as client:
        await Agent(client).turn(edit(), suite(1))
        status = (await client.get("/burnish/status")).json()
        assert (status["signals"]["on"], status["counts"]["ratings"]) == (False, 0)
    async with coding(tmp_path) as client:
        await Agent(client).turn(edit(), suite(2))
        assert [words for _, words in await verdicts(client)] == ["2 tests passed, 0 failed (pytest)"]
        state = (tmp_path / "data" / "signals.json").read_bytes()
        await Agent(client).turn(edit(), suite(3))
        assert len(await given(client)) == 2
    (tmp_path / "data" / "signals.json").write_bytes(state)  # as after kill -9
    async with coding(tmp_path) as client:
        assert len(await given(client)) == 2
    (tmp_path / "data" / "signals.json").write_bytes(b"{broken")
    async with coding(tmp_path) as client:
        await Agent(client).turn(edit(), suite(4))
        assert len(await given(client)) == 3


async def test_a_sub_agent_is_not_read(client: httpx.AsyncClient) -> None:
    await Agent(client, {"x-parent-session-id": "ses_1"}).turn(edit(), suite(12))
    assert await given(client) == []
    await Agent(client).turn(edit(), Call("Task", {"prompt": "Fix the tests"}, "fixed"), suite(12))
    assert await given(client) == []
    assert await withheld(client) == ["a sub-agent worked, and its edits aren't read"]


async def test_edits_that_a_later_turn_takes_back_were_bad(client: httpx.AsyncClient) -> None:
    for command, printed in (
        ("git checkout -- app.py", "Updated 1 path from the index"),
        ("git restore src/ app.py", ""),
        ("git reset --hard", "HEAD is now at 1a2b3c4 begin"),
    ):
        agent = Agent(client)
        first = await agent.turn(edit())
        await agent.turn(bash(command, printed), says="No, take that back.")
        last = (await given(client))[-1]
        assert (last["completion_id"], last["reward"]) == (first[-1], -1.0), command
        assert last["tags"][0] == "signal:reverted"
    agent = Agent(client)
    first = await agent.turn(edit(), bash("git commit -am fix", "[main 1a2b3c4] fix\n 1 file changed"))
    await agent.turn(bash("git revert --no-edit 1a2b3c4", '[main 5d6e7f8] Revert "fix"'))
    last = (await given(client))[-1]
    words = ["signal:reverted", "the edits were taken back: git revert"]
    assert (last["completion_id"], last["tags"]) == (first[-1], words)


COMMITTED = bash("git commit -am x", "[main 1a2b3c4] x")
ELSEWHERE: dict[str, tuple[list[Call], list[Call]]] = {
    "another file": ([edit()], [bash("git checkout -- other.py", "")]),
    "refused": ([edit()], [bash("git reset --hard", "fatal: not a git repository")]),
    "its own edit": ([edit()], [edit(), bash("git checkout -- app.py", "")]),
    "committed before": ([edit(), COMMITTED], [bash("git reset --hard", "HEAD is now at 1a2b3c4")]),
    "another commit": ([edit(), COMMITTED], [bash("git revert 9999999", "[main 5d6e7f8] R")]),
}


async def test_what_git_does_elsewhere_says_nothing(client: httpx.AsyncClient) -> None:
    for name, (first, second) in ELSEWHERE.items():
        agent = Agent(client)
        await agent.turn(*first)
        await agent.turn(*second, says="Go on.")
        assert await given(client) == [], name


async def test_edits_that_a_later_turn_commits_were_kept(client: httpx.AsyncClient) -> None:
    commit = bash("git add -A && git commit -m fix", "[main 1a2b3c4] fix\n 1 file changed")
    agent = Agent(client)
    first = await agent.turn(edit())
    await agent.turn(commit, says="Commit it.")
    (kept,) = await given(client)
    assert (kept["completion_id"], kept["reward"], kept["tags"][0]) == (first[-1], 1.0, "signal:kept")
    agent = Agent(client)
    await agent.turn(edit())
    await agent.turn(edit(), commit, says="Not like that.")
    assert len(await given(client)) == 1, "the file was edited again first"
    agent = Agent(client)
    await agent.turn(edit(), suite(11, 1))
    await agent.turn(commit, says="Commit it.")
    assert [reward for reward, _ in await verdicts(client)] == [1.0, -1.0]
    assert await withheld(client) == ["a check of that turn failed"]


async def test_a_shortened_history_gives_no_good_rating(client: httpx.AsyncClient) -> None:
    """What was done before the agent summarised its history isn't there to be read."""
    agent = Agent(client, {"x-burnish-session": "s1"})
    await agent.turn(write("tests/test_a.py", "def test(): pass", new=False), edit())
    agent.messages = [{"role": "user", "content": "This session continues from an earlier one: …"}]
    await agent.turn(edit(), suite(12))
    assert await given(client) == []
    assert await withheld(client) == ["a test file was written anew, so it may test less"]


async def test_erasing_a_user_erases_what_is_remembered(client: httpx.AsyncClient, tmp_path: Path) -> None:
    agent = Agent(client, {"x-burnish-user": "alice", "x-burnish-session": "s1"})
    await agent.turn(bash("rm tests/test_a.py", ""), edit(), suite(12))
    await read(client)
    assert "alice" in (tmp_path / "data" / "signals.json").read_text()
    assert (await client.delete("/burnish/users/alice")).status_code == 200
    assert "alice" not in (tmp_path / "data" / "signals.json").read_text()
