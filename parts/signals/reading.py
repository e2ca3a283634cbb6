"""Reads signals from a conversation: what the tools of a coding agent found out about its work. Pure.

A signal is about a turn: the edits under test may come from any of its answers. The last clear word on a turn counts.
What isn't clear gives nothing, and if that would have been a good rating, the reason is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from burnish.parts.signals.checks import CheckCommand, check_in
from burnish.parts.signals.counts import RunCounts, counts_in
from burnish.parts.signals.edits import (
    FAILED,
    PATCH_BEGINS,
    Edit,
    Git,
    covers,
    edits_by,
    gits_in,
    is_test,
    patched,
    says_how_tests_run,
)
from burnish.parts.signals.outcomes import CommandEnd, Commands, outcomes
from burnish.parts.signals.shell import script_of, simple_commands
from burnish.parts.signals.tampering import tampered_by, tampered_by_edits
from burnish.proxy.messages import of_a_person, text_of

SHELL_TOOLS = frozenset({
    "bash", "shell", "exec", "execcommand", "runshellcommand", "runcommands", "runcommand", "executecommand",
    "terminal", "runterminalcommand", "runinterminal", "localshell", "localshellcall", "shellcommand",
})  # fmt: skip
"""Names of tools that run commands, in small letters and without underscores."""
DELEGATES = frozenset({
    "task", "agent", "spawnagent", "teamruntask", "teamspawnteammate", "newtask", "sessionsspawn", "subagent",
})  # fmt: skip
COMMANDS = ("command", "cmd", "commands", "script")

DELEGATED = "a sub-agent worked, and its edits aren't read"
SHORTENED = "the agent shortened its history, so earlier changes to tests can't be ruled out"
NARROWED = "an option left tests out"
LEFT_OUT = "tests were left out or filtered"
FEWER = "fewer tests ran than before"
MORE_SKIPPED = "more tests were skipped than before"
OWN_TESTS = "the agent wrote the tests itself, and none ran before"
STILL_FAILS = "another check of this turn still fails"
DENIED = "the tests failed, but the command ended with exit code 0"
PRINTED = "something was printed before the check, and the exit code isn't known"
CHANGED_MEANWHILE = "files were edited while the check ran"
NOT_PASSED = "a check of that turn failed"

Kind = Literal["tests", "exit_code", "reverted", "kept"]


class Signal(NamedTuple):
    """What the tools say of a turn."""

    kind: Kind
    answers_back: int
    """Which answer of the turn it names: 0 is the one whose calls gave the latest results, 1 the one before."""
    good: bool | None
    """None: it can't be trusted, so there is no rating."""
    words: str
    """The reason of the rating, or why there is none."""


class Reading(NamedTuple):
    """What was read of a conversation."""

    signals: tuple[Signal, ...]
    """Of the latest results only."""
    turns: tuple[int, ...]
    """The turn of each answer."""
    doubt: str | None
    """Why no later result of this conversation can be trusted."""


Tests = tuple[str, str]
"""A runner, and what it counts: runs of different ones can't be compared."""


def read(messages: Sequence[Mapping[str, Any]], *, logged: int = 0, doubt: str | None = None) -> Reading:
    """Read a context that ends with results of tools.

    ``logged``: how many answers of the branch the log has; more than in the context, if it was shortened.
    ``doubt``: what was found before in the same session.
    """
    conversation = _Conversation(doubt=doubt)
    answers = sum(message.get("role") == "assistant" for message in messages)
    if logged > answers:
        conversation.doubt = doubt or SHORTENED
    results = {
        str(message.get("tool_call_id")): text_of(dict(message))
        for message in messages
        if message.get("role") == "tool"
    }
    for message in messages:
        if message.get("role") == "assistant":
            conversation.begin_answer()
            for tool, arguments, output in _calls(message, results):
                conversation.called(tool, arguments, output)
        elif message.get("role") == "user" and of_a_person(dict(message)):
            conversation.begin_turn()
    return Reading(tuple(conversation.signals), tuple(conversation.turns), conversation.doubt)


def _calls(message: Mapping[str, Any], results: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    """Yield tool, arguments and result of each call that has a result."""
    for call in message.get("tool_calls") or ():
        if not isinstance(call, dict) or (output := results.get(str(call.get("id")))) is None:
            continue
        function = call.get("function") or call.get("custom") or call
        arguments = function.get("arguments", function.get("input"))
        yield str(function.get("name") or ""), _parsed(arguments), output


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments


@dataclass
class _Conversation:
    """What happened so far."""

    doubt: str | None
    signals: list[Signal] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    _turn: int = 0
    _edits: list[tuple[int, str]] = field(default_factory=list)
    """Turn and path, of files that aren't tests."""
    _commits: list[tuple[int, str]] = field(default_factory=list)
    _taken_back: set[int] = field(default_factory=set)
    _verdicts: dict[int, bool] = field(default_factory=dict)
    """The last word on each turn."""
    _failing: set[str] = field(default_factory=set)
    """Checks of this turn."""
    _latest: dict[Tests, RunCounts] = field(default_factory=dict)
    _most: dict[Tests, RunCounts] = field(default_factory=dict)
    """The run with the most tests."""
    _at_edit: dict[Tests, RunCounts] = field(default_factory=dict)
    """The latest runs before this turn's first edit."""
    _before_own: dict[Tests, RunCounts] | None = None
    """The largest runs before the agent wrote tests; None: it wrote none."""
    _running: Commands = field(default_factory=Commands)

    def begin_turn(self) -> None:
        self._turn += 1
        self._failing.clear()

    def begin_answer(self) -> None:
        self.turns.append(self._turn)
        self.signals.clear()

    def called(self, tool: str, arguments: Any, output: str) -> None:
        name = tool.lower().replace("_", "").replace("-", "")
        if edits := edits_by(tool, arguments, output):
            self._edited(edits)
        elif name in DELEGATES:
            self.doubt = self.doubt or DELEGATED
        elif name in SHELL_TOOLS:
            for command, outcome in zip(_commands(arguments), outcomes(output), strict=False):
                self._ran(command, outcome, output)
        elif pair := self._running.asked(name, arguments, output):
            slow, outcome = pair
            self._ended(slow.command, outcome, CHANGED_MEANWHILE if slow.files_changed else None)

    # -- edits ---------------------------------------------------------------------------------------------------------

    def _edited(self, edits: Sequence[Edit]) -> None:
        self.doubt = self.doubt or tampered_by_edits(edits)
        self._running.edited()
        for edit in edits:
            if not is_test(edit.path):
                if not says_how_tests_run(edit.path):
                    self._note_edit(edit.path)
            elif self._before_own is None:
                self._before_own = dict(self._most)

    def _note_edit(self, path: str) -> None:
        if not self._edits_of(self._turn):
            self._at_edit = dict(self._latest)
        self._edits.append((self._turn, path))

    def _edits_of(self, turn: int) -> list[str]:
        return [path for made_in, path in self._edits if made_in == turn]

    def _edited_before(self) -> int | None:
        """Return the latest earlier turn with edits."""
        return max((turn for turn, _ in self._edits if turn < self._turn), default=None)

    # -- commands ------------------------------------------------------------------------------------------------------

    def _ran(self, command: str, outcome: CommandEnd, output: str) -> None:
        if PATCH_BEGINS in command:
            if not outcome.code and not FAILED.match(outcome.output):
                self._edited(list(patched(command)))
            return
        self.doubt = self.doubt or tampered_by(command)
        for path in _written(command):
            self._note_edit(path)
        if not self._running.began(command, output):
            self._ended(command, outcome)

    def _ended(self, command: str, outcome: CommandEnd, obstacle: str | None = None) -> None:
        for git in gits_in(command, outcome):
            self._committed(git) if git.act == "commit" else self._reverted(git)
        if check := check_in(command):
            self._checked(check._replace(obstacle=check.obstacle or obstacle), outcome)

    def _checked(self, check: CheckCommand, outcome: CommandEnd) -> None:
        counts = counts_in(outcome.output) if check.tests else None
        code = None if check.piped else outcome.code
        edited = bool(self._edits_of(self._turn))
        obstacle = check.obstacle or (PRINTED if check.printed and code is None else None)
        if obstacle or (counts and counts.failed and code == 0):
            if edited:
                self._say("exit_code" if not check.tests else "tests", None, obstacle or DENIED)
            return
        if counts:
            key = (counts.runner, counts.unit)
            unlike = self._unlike(key, counts)
            self._latest[key] = counts
            self._most[key] = max(counts, self._most.get(key, counts), key=lambda run: run.ran)
            if edited and counts.failed:
                self._failed(check, counts, key)
            elif edited and counts.passed and not code:
                self._passed(check, "tests", counts.in_words(), NARROWED if check.narrowed else unlike)
        elif edited and code is not None and not check.counted:
            words = f"{check.name} ended with exit code {code}"
            if code:
                self._failing.add(check.name)
                self._say("exit_code", False, words)
            else:
                self._passed(check, "exit_code", words, NARROWED if check.narrowed else None)

    def _unlike(self, key: Tests, counts: RunCounts) -> str | None:
        """Return how a run falls short of earlier ones."""
        most = self._most.get(key)
        if counts.left_out:
            return LEFT_OUT
        if self._before_own is not None and key not in self._before_own:
            return OWN_TESTS
        if most and counts.ran < most.ran:
            return FEWER
        return MORE_SKIPPED if most and counts.skipped > most.skipped else None

    def _failed(self, check: CheckCommand, counts: RunCounts, key: Tests) -> None:
        earlier = self._at_edit.get(key)
        if earlier and earlier.failed >= counts.failed:
            return  # they failed without these edits
        self._failing.add(check.name)
        self._say("tests", False, counts.in_words())

    def _passed(self, check: CheckCommand, kind: Kind, words: str, unlike: str | None) -> None:
        other_check = STILL_FAILS if self._failing - {check.name} else None
        if obstacle := self.doubt or unlike or other_check:
            self._say(kind, None, obstacle)
            return
        self._failing.discard(check.name)
        self._say(kind, True, words)

    # -- keeping and taking back ---------------------------------------------------------------------------------------

    def _committed(self, git: Git) -> None:
        """A commit in a later turn than the edits: the person went on, and what was edited stayed as it was."""
        turn = self._edited_before()
        new = not any(made_in >= turn for made_in, _ in self._commits) if turn is not None else False
        self._commits.append((self._turn, git.commit))
        if turn is None or not new or turn in self._taken_back:
            return
        files, since = set(self._edits_of(turn)), {path for made_in, path in self._edits if made_in > turn}
        if files & since:
            return
        obstacle = self.doubt or (NOT_PASSED if self._verdicts.get(turn) is False else None)
        words = obstacle or "the edits were kept, and committed in a later turn"
        self._say("kept", None if obstacle else True, words, turn)

    def _reverted(self, git: Git) -> None:
        """Taking edits back counts in a later turn only: within a turn, an agent may try things."""
        turn = self._turn_of(git)
        if turn is None or turn == self._turn or turn in self._taken_back:
            return
        self._taken_back.add(turn)
        self._say("reverted", False, f"the edits were taken back: {git.name}", turn)

    def _turn_of(self, git: Git) -> int | None:
        """Return the turn whose edits git took back, as far as that is clear."""
        if git.act == "revert":
            turns = [
                turn
                for turn, commit in self._commits
                if commit.startswith(git.commit) or git.commit.startswith(commit)
            ]
            latest = [turn for turn, _ in self._commits[-1:]]
            return max(latest if git.commit == "HEAD" else turns, default=None)
        if git.act == "discard":
            return max((turn for turn, path in self._edits if covers(git.files, path)), default=None)
        turn = max((made_in for made_in, _ in self._edits), default=None)
        committed = turn is not None and any(made_in >= turn for made_in, _ in self._commits)
        return None if committed and not git.back else turn

    def _say(self, kind: Kind, good: bool | None, words: str, turn: int | None = None) -> None:
        turn = self._turn if turn is None else turn
        if good is not None:
            self._verdicts[turn] = good
        last = max(
            (index for index, answer_turn in enumerate(self.turns) if answer_turn == turn), default=None
        )
        if last is not None:
            self.signals.append(Signal(kind, len(self.turns) - 1 - last, good, words))


def _commands(arguments: Any) -> list[str]:
    if not isinstance(arguments, Mapping):
        return []
    commands = next((arguments[name] for name in COMMANDS if name in arguments), None)
    several = commands if "commands" in arguments and isinstance(commands, list) else [commands]
    return [script for command in several if (script := script_of(command)) is not None]


def _written(command: str) -> Iterator[str]:
    """Yield the files, not tests, that a plain command writes to."""
    for simple in simple_commands(command) or ():
        in_place = simple.program == "sed" and any(
            word.startswith(("-i", "--in-place")) for word in simple.words[1:]
        )
        for path in (*simple.writes, *(simple.words[-1:] if in_place else ())):
            if not path.startswith("/dev/") and not is_test(path) and not says_how_tests_run(path):
                yield path
