"""A real agent in a home folder of its own, run to its end, and what burnish has logged of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from tests.support.burnish import Burnish
from tests.support.patience import within
from tests.support.scripted_model import ScriptedModel

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".clients"
INSTALLED = CLIENTS / ".burnish-clients"
LIMIT_S = 90.0
"""Of one run; on a machine that is busy with something else."""

QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "CONTINUE_TELEMETRY_ENABLED": "0",
    "NO_UPDATE_NOTIFIER": "1",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
"""No agent has business outside this machine here."""

Found = TypeVar("Found")


class Agent:
    """What a test does with an agent, and sees of it."""

    def __init__(self, burnish: Burnish, model: ScriptedModel, home: Path, key: str = "") -> None:
        """``key``: that of burnish, where it wants one; the agent is not told."""
        self.burnish = burnish
        self.model = model
        self.home = home
        self.key = key
        self.env: dict[str, str] = {}
        """What is set in the shell besides."""
        self.work = home / "work"
        self.work.mkdir(parents=True)
        self.before = ""

    def begin(self) -> None:
        """Forget what was logged so far."""
        logged = self._get("/burnish/completions", limit=1)["data"]
        self.before = logged[0]["id"] if logged else ""

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Run a program in the home folder; return what it printed. It must end well, and in time."""
        ended, output = self.ended(*command, env=env)
        assert ended == 0, f"{command} ended with {ended}:\n{output}"
        return output

    def ended(self, *command: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run a program in the home folder, however it ends, but in time; return its exit code and what it printed."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self._started(command, env or {}, **pipes) as process:
            output, errors = process.communicate(timeout=within(LIMIT_S))
        return process.returncode, output if process.returncode == 0 else f"{output}\n{errors}"

    @contextmanager
    def running(self, *command: str, talks: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Run a server of the agent's until the block is left; what it says is in ``said.txt``, unless to us."""
        with (self.home / "said.txt").open("w") as said:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE if talks else said, "stderr": said}
            with self._started(command, {}, **pipes) as process:
                yield process

    @contextmanager
    def _started(
        self, command: Sequence[str], env: Mapping[str, str], **pipes: Any
    ) -> Iterator[subprocess.Popen[str]]:
        """A program with all that it starts, which is killed when the block is left."""
        env = self._env() | dict(env)
        program = _found(command)
        with subprocess.Popen(
            program, cwd=self.work, env=env, text=True, start_new_session=True, **pipes
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def end(self) -> None:
        """End what it left running: some start servers that outlive them."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home):
                    process.kill()

    def burnish_says(self, *arguments: str) -> str:
        """Run a command of burnish, as the person who uses the agent would, in a shell that knows its key."""
        key = {"BURNISH_API_KEY": self.key} if self.key else {}
        return self.run(sys.executable, "-m", "burnish", *arguments, env=key)

    def files(self) -> dict[str, bytes]:
        """Every file of the home folder. A server that the agent left running may delete one meanwhile."""
        found: dict[str, bytes] = {}
        for path in sorted(self.home.rglob("*")):
            with suppress(FileNotFoundError):
                if path.is_file():
                    found[str(path.relative_to(self.home))] = path.read_bytes()
        return found

    def newest(self, pattern: str) -> Path:
        """The file of the home folder that was written last."""
        return max(self.home.glob(pattern), key=lambda path: path.stat().st_mtime)

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def given(self) -> dict[str, float]:
        """The ratings that were given since then, by the id of the answer that each was given to."""
        latest: dict[str, float] = {}
        for each in self._get("/v1/feedback", limit=100)["data"]:
            if each["completion_id"] > self.before and each["undone_at"] is None:
                latest.setdefault(each["completion_id"], each["reward"])
        return latest

    def ratings(self) -> dict[str, float]:
        """The same, by the text of the answer."""
        texts = {each["id"]: said(each) for each in self.logged()}
        return {texts[answer]: rating for answer, rating in self.given().items()}

    def logged(self) -> list[dict[str, Any]]:
        """What burnish has logged since then, earliest first."""
        found = self._get("/burnish/completions", limit=100)["data"]
        return [each for each in reversed(found) if each["id"] > self.before]

    def completion(self, name: str) -> dict[str, Any]:
        """One of these with its conversation."""
        return dict(self._get(f"/burnish/completions/{name}"))

    def rated(self) -> dict[str, Any]:
        """The one of these that was rated, with its turn."""
        logged = {each["id"]: each for each in self.logged()}
        given = self._get("/v1/feedback", limit=100)["data"]
        (rated,) = [logged[each["completion_id"]] for each in given if each["completion_id"] in logged]
        return rated

    def _get(self, path: str, **params: Any) -> Any:
        headers = {"x-burnish-key": self.key} if self.key else {}
        answer = httpx.get(self.burnish.url + path, params=params, headers=headers, timeout=within(10))
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()

    def _env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        path = f"{CLIENTS / 'node_modules' / '.bin'}:{os.environ['PATH']}:{CLIENTS / 'aider' / 'bin'}"
        own = {"HOME": str(self.home), "PATH": path, "BURNISH_DATA_DIR": str(self.burnish.data_dir)}
        return kept | QUIET | own | self.env


def said(completion: dict[str, Any]) -> str:
    content = (completion["reply"] or {}).get("content")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def until(found: Callable[[], Found]) -> Found:
    deadline = time.monotonic() + within(LIMIT_S)
    while not (value := found()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
    return value


def _found(command: Sequence[str]) -> list[str]:
    bins = (CLIENTS / "node_modules" / ".bin", CLIENTS / "python" / "bin")
    program = next((str(found) for folder in bins if (found := folder / command[0]).exists()), command[0])
    return [program, *command[1:]]
