"""What real programs say: the agents' tools how a command ended, and runners of tests how many passed.

The agents' words were recorded with those of ``scripts/clients``; OpenClaw's are from its program.
"""

from __future__ import annotations

import time

import pytest

from burnish.parts.signals.counts import RunCounts, counts_in
from burnish.parts.signals.edits import edits_by
from burnish.parts.signals.outcomes import outcomes
from burnish.parts.signals.reading import read
from burnish.parts.signals.shell import simple_commands
from tests.support import chat_wire

ENDS = {
    "Claude Code": ("Exit code 3\nbad", (3, "bad")),
    "Claude Code, 0": ("fine", (None, "fine")),
    "Claude Code, nothing": ("(Bash completed with no output)", (None, "(Bash completed with no output)")),
    "Codex": (
        "Chunk ID: b9219a\nWall time: 0.1576 seconds\nProcess exited with code 3\n"
        "Original token count: 1\nOutput:\nbad\n",
        (3, "bad\n"),
    ),
    "Codex, it runs on": (
        "Chunk ID: b9219a\nWall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\n12 passed in 1s\n",
        (None, ""),
    ),
    "Codex, before": (
        "Exit code: 1\nWall time: 0.1 seconds\nTotal output lines: 1\nOutput:\nbad",
        (1, "bad"),
    ),
    "Codex, at first": (
        '{"output":"bad\\n","metadata":{"exit_code":1,"duration_seconds":0.1}}',
        (1, "bad\n"),
    ),
    "opencode": ("bad\n", (None, "bad\n")),
    "Qwen Code": (
        "Command: printf x\nDirectory: (root)\nOutput: out\nerr\nError: (none)\nExit Code: 1\nSignal: (none)\n"
        "Process Group PGID: (none)",
        (1, "out\nerr"),
    ),
    "Gemini CLI": ("Output: out\nExit Code: 2", (2, "out")),
    "OpenClaw": ("bad\n\n(Command exited with code 3)", (3, "bad")),
    "OpenClaw, another": ("bad\n\nCommand exited with code 3", (3, "bad")),
    "colours": ("\x1b[32m12 passed\x1b[0m in 0.1s", (None, "12 passed in 0.1s")),
    "printed JSON": ('[1, {"a": 2}]', (None, '[1, {"a": 2}]')),
    "broken JSON": ("{oops", (None, "{oops")),
}


@pytest.mark.parametrize(("result", "end"), ENDS.values(), ids=ENDS.keys())
def test_how_a_command_ended(result: str, end: tuple[int | None, str]) -> None:
    assert [(each.code, each.output) for each in outcomes(result)] == [end]


def test_cline_runs_several_commands_in_one_call() -> None:
    result = (
        '[{"query":"a","result":"fine\\n","success":true},{"query":"b",'
        '"result":"[Command exited with code 3]\\nbad\\n",'
        '"error":"Command exited with code 3","success":false}]'
    )
    assert [(each.code, each.output) for each in outcomes(result)] == [(0, "fine\n"), (3, "bad\n")]


VITEST = """ RUN  v3.2.4 /work

 ✓ a.test.ts (2 tests) 3ms
 ❯ b.test.ts (0 test)

 Test Files  1 failed | 1 passed (2)
      Tests  2 passed (2)
   Start at  10:00:00"""
CARGO = """running 3 tests
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `--lib`"""
GO = """--- FAIL: TestB (0.00s)
    b_test.go:5: 1 != 2
FAIL
FAIL\tmod/b\t0.002s
ok  \tmod/a\t(cached)
?   \tmod/c\t[no test files]
FAIL"""
GO_LOUD = """=== RUN   TestA
--- PASS: TestA (0.00s)
    --- PASS: TestA/x (0.00s)
--- SKIP: TestC (0.00s)
PASS
ok  \tmod/a\t0.002s"""
RUNS = {
    "pytest": ("=== 1 failed, 11 passed, 2 skipped, 1 warning in 0.12s ===", RunCounts("pytest", 11, 1, 2)),
    "pytest, quiet": ("............\n12 passed in 0.12s", RunCounts("pytest", 12, 0)),
    "pytest, errors": ("==== 2 errors in 0.50s ====", RunCounts("pytest", 0, 2)),
    "pytest, a minute": ("== 3 passed, 1 deselected in 75.10s (0:01:15) ==", RunCounts("pytest", 3, 0, 0, 1)),
    "pytest, nothing": ("==== no tests ran in 0.01s ====", RunCounts("pytest", 0, 0)),
    "pytest, and something like it": ("12 passed in 0.12s\n=== no tests ran in 0.01s ===", None),
    "pytest, twice": ("1 failed in 0.1s\n12 passed in 0.12s", None),
    "unittest": ("...\n-----\nRan 3 tests in 0.001s\n\nOK (skipped=1)\n", RunCounts("unittest", 2, 0, 1)),
    "unittest, red": ("Ran 4 tests in 0.1s\n\nFAILED (failures=1, errors=2)\n", RunCounts("unittest", 1, 3)),
    "jest": (
        "Test Suites: 1 failed, 1 total\nTests:       1 failed, 1 skipped, 2 passed, 4 total\nSnapshots:   0 total",
        RunCounts("jest", 2, 1, 1),
    ),
    "jest, a file that can't be loaded": (
        "Test Suites: 1 failed, 1 passed, 2 total\nTests:       2 passed, 2 total",
        RunCounts("jest", 2, 1),
    ),
    "vitest": (VITEST, RunCounts("vitest", 2, 1)),
    "go test": (GO, RunCounts("go test", 1, 1, unit="package")),
    "go test -v": (GO_LOUD, RunCounts("go test", 2, 0, 1)),
    "cargo test": (CARGO, RunCounts("cargo test", 2, 1)),
    "prose": ("I think that 12 passed in the end", None),
}


@pytest.mark.parametrize(("output", "counts"), RUNS.values(), ids=RUNS.keys())
def test_how_many_tests_passed(output: str, counts: RunCounts | None) -> None:
    assert counts_in(output) == counts


CAMEL = {"oldString": "x = 1", "newString": "x = 3"}
SNAKE = {"old_string": "x = 1", "new_string": "x = 3"}
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 3\n y = 1\n*** End Patch"
EDITS = {
    "opencode": ("edit", {"filePath": "a.py", **CAMEL}, "Edit applied successfully."),
    "Qwen Code": ("edit", {"file_path": "a.py", **SNAKE}, "The file: a.py has …"),
    "Cline": ("editor", {"path": "a.py", "old_text": "x = 1", "new_text": "x = 3"}, '{"result": "ok"}'),
    "OpenClaw": ("edit", {"path": "a.py", "oldText": "x = 1", "newText": "x = 3"}, "Successfully replaced"),
    "several": ("MultiEdit", {"file_path": "a.py", "edits": [SNAKE]}, "done"),
    "a patch": ("apply_patch", PATCH, "Success. Updated the following files:\nM a.py\n"),
}


@pytest.mark.parametrize(("tool", "arguments", "result"), EDITS.values(), ids=EDITS.keys())
def test_what_a_tool_changed(tool: str, arguments: object, result: str) -> None:
    (edit,) = edits_by(tool, arguments, result)
    assert (edit.path, edit.kind, edit.removed, edit.added) == ("a.py", "changed", ("x = 1",), ("x = 3",))


def test_what_a_tool_did_not_change() -> None:
    new = {"filePath": "a.py", "content": "x = 1"}
    assert [each.kind for each in edits_by("write", new, "Wrote file successfully.")] == ["rewritten"]
    created = edits_by("write_file", new, "Successfully created and wrote to new file")
    assert [each.kind for each in created] == ["new"]
    assert edits_by("editor", {"path": "a.py"}, '{"error":"invalid"}') == []
    refused = "File /work/a.py has not been read in this session. Use the read_file tool first"
    assert edits_by("write_file", new, refused) == []
    assert edits_by("read_file", {"path": "a.py"}, "x = 1") == []
    assert edits_by("edit", ["a"], "done") == []


def test_commands_of_a_shell() -> None:
    def words(command: str) -> list[tuple[str, str]] | None:
        commands = simple_commands(command)
        return None if commands is None else [(" ".join(each.words), each.joint) for each in commands]

    several = [("cd /a", "&&"), ("pytest -q 2", "|"), ("tail -5", "")]
    assert words("cd /a && A=1 timeout -k 5 60 uv run pytest -q 2>&1 | tail -5; # done") == several
    assert words("# first\npytest -q\n") == [("pytest -q", "")]
    assert words("git commit -m 'a; b'") == [("git commit -m a; b", "")]
    substitutes = ("pytest `x`", "pytest $(x)", "(pytest)")
    for command in (*substitutes, "cat <<E", "for x in a; do b; done", "echo 'open", "&& a"):
        assert words(command) is None, command


HUGE = {
    "counts": ("pytest", "1 passed, " * 100_000),
    "spaces": ("npx jest", "Tests: " + " " * 300_000),
    "lines": ("python -m unittest", "Ran 1 test in 0s" + "\n" * 300_000),
    "errors": ("pytest", "Output: " + "x\nError: y\n" * 50_000),
    "words": ("jest " + "test " * 50_000, ""),
    "assignments": ("A=b " * 50_000 + "pytest", ""),
}


@pytest.mark.parametrize(("command", "result"), HUGE.values(), ids=HUGE.keys())
def test_huge_texts_are_read_in_no_time(command: str, result: str) -> None:
    """Nobody waits for it, but no pattern may go through a text again and again."""
    began = time.process_time()
    asks = {"role": "assistant", "tool_calls": [chat_wire.called("Bash", {"command": command}, "c")]}
    answer = {"role": "tool", "tool_call_id": "c", "content": result}
    read([{"role": "user", "content": "Go on."}, asks, answer])
    assert time.process_time() - began < 2
