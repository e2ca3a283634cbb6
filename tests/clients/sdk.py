"""A real SDK in a process of its own, asked turn by turn, and what became of its answers and ratings in burnish."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import httpx

from tests.clients.agent import CLIENTS
from tests.support.burnish import Burnish
from tests.support.patience import within
from tests.support.scripted_model import Fails, scripted_model
from tests.support.upstream import Received
from tests.support.wires import FORMATS, Says

PROGRAMS = Path(__file__).parent / "sdks"
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1", "DO_NOT_TRACK": "1"}
"""No SDK has business outside this machine here."""


Shown = Literal["always", "whole", "never"]
"""Whether an SDK shows something: also of an answer that is streamed, or only of a whole one."""


@dataclass(frozen=True)
class Sdk:
    """What an SDK shows of an answer, and how it says that one was refused."""

    name: str
    program: tuple[str, ...]
    """Its interpreter within .clients, its file in sdks/, its name there, and what that wants to be told."""
    errors: tuple[str, str, str]
    """What it raises for the statuses 404, 429 and 500."""
    id: Shown = "always"
    header: Shown = "always"
    """The answer's, of burnish."""
    thoughts: Shown = "always"
    says_when: bool = True
    """Whether its error shows Retry-After."""
    runs_tools: bool = False
    """Whether it runs a tool by itself, and asks again with what that gave."""
    only: str = ""
    """The path of the one format that the upstream knows; empty: every one."""

    def sees(self, completion: dict[str, Any], streamed: bool) -> dict[str, Any]:
        """What it should have assembled of an answer, by what the log has of it."""
        reply = completion["reply"]
        calls = [(call.get("id"), call["function"]) for call in reply.get("tool_calls", ())]
        shown = ("always",) if streamed else ("always", "whole")
        return {
            "text": reply["content"] or "",
            "calls": [
                {"id": id, "name": made["name"], "arguments": json.loads(made["arguments"])}
                for id, made in calls
            ],
            "reasoning": reply.get("reasoning_content") if self.thoughts in shown else None,
            "id": completion["response_id"] if self.id in shown else None,
            "header": completion["id"] if self.header in shown else None,
            "usage": [completion["prompt_tokens"], completion["completion_tokens"]],
        }


@dataclass(frozen=True)
class Turn:
    """What an SDK made of the last answer of a turn."""

    history: list[int]
    """The entries of its conversation up to here."""
    answer: dict[str, Any]
    number: int
    """Which of all answers of the model this is; of ours the last one before it."""


@dataclass
class SdkModel:
    """A running model that says what a test tells it to, in the format in which it is asked."""

    url: str = ""
    says: deque[Says | Fails] = field(default_factory=deque)
    """What it is about to say."""
    requests: list[Received] = field(default_factory=list)


@contextmanager
def sdk_model(*, only: str = "") -> Iterator[SdkModel]:
    """Run it until the block is left; ``only``: the one format that it knows, by its path."""
    says: deque[Says | Fails] = deque()
    with scripted_model(lambda asked: says.popleft(), formats=[only] if only else [*FORMATS]) as model:
        yield SdkModel(model.url, says, model.requests)


class Program:
    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def turn(self, **asked: Any) -> dict[str, Any]:
        """Ask for one turn; return what it printed."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"it has ended: {self._errors.read_text()}"
        return json.loads(line)


@contextmanager
def running_sdk(sdk: Sdk, url: str, home: Path) -> Iterator[Program]:
    """Run an SDK's program in a folder of its own until the block is left."""
    interpreter, program, *more = sdk.program
    home.mkdir(exist_ok=True)
    shutil.copytree(PROGRAMS, home / "sdks", ignore=shutil.ignore_patterns("__pycache__"))
    (home / "node_modules").symlink_to(CLIENTS / "node_modules")
    env = {"HOME": str(home), "PATH": os.environ["PATH"], **QUIET}
    with (home / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [str(CLIENTS / interpreter), str(home / "sdks" / program), url, *more],
            cwd=home,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield Program(process, home / "errors.txt")
    finally:
        process.kill()
        process.communicate()


@dataclass
class Talk:
    """One conversation of an SDK with the model behind burnish, and all ratings given in it."""

    sdk: Sdk
    program: Program
    burnish: Burnish
    model: SdkModel
    streamed: bool
    answers: list[dict[str, Any]] = field(default_factory=list)
    """What the SDK made of each answer of the model."""
    meant: dict[str, int] = field(default_factory=dict)
    """Comments of ratings, each with the number of the answer that it is meant for."""

    def __post_init__(self) -> None:
        logged = self._get("/burnish/completions", limit=1)["data"]
        self._before = logged[0]["id"] if logged else ""
        self.model.says.clear()  # what a test that failed has left

    def ask(self, history: list[int], question: str, says: Says) -> Turn:
        return self._turn([says], of=history, user=question)

    def ask_for_tool(self, history: list[int], question: str, call: Says, result: str, says: Says) -> Turn:
        if self.sdk.runs_tools:
            return self._turn([call, says], of=history, user=question, result=result)
        called = self._turn([call], of=history, user=question)
        return self._turn([says], of=called.history, result=result)

    def again(self, turn: Turn, says: Says) -> Turn:
        return self._turn([says], of=turn.history[:-1])

    def type(self, history: list[int], command: str) -> Turn:
        """Type a command as a message of the user's: the model is not asked."""
        return self._turn([], of=history, user=command)

    def fail(self, history: list[int], question: str, status: HTTPStatus) -> dict[str, Any]:
        """Ask something that is refused; return the SDK's error."""
        self.model.says.append(Fails(status))
        return self.program.turn(of=history, user=question, stream=self.streamed)["error"]

    def rate_by_type(self, turn: Turn) -> Turn:
        """Rate the last answer of a history by ``/rl``, and keep that exchange in the history."""
        comment = self._comment(turn)
        typed = self.type(turn.history, f"/rl good {comment}")
        assert typed.answer["text"].startswith("burnish: rated good with your comment")
        return typed

    def rate_by_name(self, turn: Turn) -> None:
        """Rate an answer by all that the SDK shows of it: its id, and the header."""
        shown = {"response_id": turn.answer["id"], "completion_id": turn.answer["header"]}
        for name, value in shown.items():
            if value is not None:
                rating = {name: value, "rating": "bad", "comment": self._comment(turn)}
                rated = httpx.post(f"{self.burnish.url}/v1/feedback", json=rating, timeout=within(10))
                rated.raise_for_status()

    def logged(self) -> list[dict[str, Any]]:
        """All completions of this conversation, earliest first, with all that is known of them."""
        listed = self._get("/burnish/completions", limit=100)["data"]
        found = [each["id"] for each in reversed(listed) if each["id"] > self._before]
        return [self._get(f"/burnish/completions/{each}") for each in found]

    def rated(self) -> dict[str, str]:
        """The comments of all ratings that were given here, with the completions that they reached."""
        given = self._get("/v1/feedback", limit=100)["data"]
        return {
            each["comment"]: each["completion_id"] for each in given if each["completion_id"] > self._before
        }

    def rated_as_meant(self, logged: list[dict[str, Any]]) -> dict[str, str]:
        """The same, if each rating reached the answer that it was meant for."""
        return {comment: logged[number]["id"] for comment, number in self.meant.items()}

    def _turn(self, says: list[Says], **asked: Any) -> Turn:
        self.model.says.extend(says)
        said = self.program.turn(stream=self.streamed, **asked)
        assert "error" not in said, said
        assert not self.model.says, "the model was not asked so often"
        if says:
            self.answers += said["answers"]
        return Turn(said["of"], said["answers"][-1], len(self.answers) - 1)

    def _comment(self, turn: Turn) -> str:
        comment = f"rating {len(self.meant)}"
        self.meant[comment] = turn.number
        return comment

    def _get(self, path: str, **params: Any) -> Any:
        answer = httpx.get(self.burnish.url + path, params=params, timeout=within(10))
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()
