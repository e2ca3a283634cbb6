"""A coding agent by script, in front of a real burnish: what its model calls, and what its tools answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.support import chat_wire
from tests.support.inprocess import calling
from tests.support.patience import within
from tests.support.upstream import Received, Script, reply, upstream

Json = dict[str, Any]
LIMIT_S = 30.0
POLL_S = 0.02


@dataclass(frozen=True)
class Call:
    """A tool that the model calls, and what it gives."""

    tool: str
    arguments: Any
    result: str


def bash(command: str, result: str) -> Call:
    """In Claude Code's form, which puts an exit code other than 0 before the output."""
    return Call("Bash", {"command": command, "description": "x"}, result)


def codex(command: str, output: str, code: int = 0) -> Call:
    head = f"Chunk ID: 82f538\nWall time: 0.1556 seconds\nProcess exited with code {code}\nOriginal token count: 2\n"
    return Call("exec_command", {"cmd": command}, f"{head}Output:\n{output}\n")


def codex_runs(command: str, output: str) -> Call:
    """It still runs after ten seconds, in session 7."""
    head = "Chunk ID: 0e99df\nWall time: 10.0012 seconds\nProcess running with session ID 7\n"
    return Call("exec_command", {"cmd": command}, f"{head}Original token count: 2\nOutput:\n{output}")


def codex_asks(ended: Call, chars: str = "") -> Call:
    """Ask how the command of session 7 goes on."""
    return Call("write_stdin", {"session_id": 7, "chars": chars}, ended.result)


def edit(path: str = "app.py", old: str = "x = 1", new: str = "x = 2") -> Call:
    words = {"file_path": f"/work/{path}", "old_string": old, "new_string": new}
    return Call("Edit", words, f"The file /work/{path} has been updated successfully.")


def write(path: str, content: str, *, new: bool) -> Call:
    done = "File created successfully at: /work/{}" if new else "The file /work/{} has been updated."
    return Call("Write", {"file_path": f"/work/{path}", "content": content}, done.format(path))


def pytest_says(passed: int, failed: int = 0, more: str = "") -> str:
    counts = [f"{failed} failed"] * bool(failed) + [f"{passed} passed"] * bool(passed) + [more] * bool(more)
    text = f"....\n{', '.join(counts)} in 0.12s"
    return f"Exit code 1\n{text}" if failed else text


def suite(passed: int, failed: int = 0, more: str = "") -> Call:
    return bash("pytest", pytest_says(passed, failed, more))


@dataclass
class Agent:
    client: httpx.AsyncClient
    headers: dict[str, str] = field(default_factory=dict)
    messages: list[Json] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """IDs of its completions."""

    async def turn(self, *steps: Call | list[Call], says: str = "Please fix it.") -> list[str]:
        """A person speaks, the model calls tools step by step, then it says that it is done. Return the turn's IDs."""
        self.messages.append({"role": "user", "content": says})
        first = len(self.answers)
        for step in steps:
            await self._step([step] if isinstance(step, Call) else step)
        await self._step([])
        return self.answers[first:]

    async def _step(self, calls: list[Call]) -> None:
        number = len(self.messages)
        named = [(f"call_{number}_{index}", each) for index, each in enumerate(calls)]
        wanted = [chat_wire.called(each.tool, each.arguments, name) for name, each in named]
        says = {"content": None, "tool_calls": wanted} if wanted else {"content": f"Done {number}."}
        body = {"model": "m", "messages": self.messages, "metadata": {"says": orjson.dumps(says).decode()}}
        answer = await self.client.post("/v1/chat/completions", json=body, headers=self.headers)
        assert answer.status_code == 200, answer.text
        self.answers.append(answer.headers["x-burnish-completion-id"])
        self.messages.append(answer.json()["choices"][0]["message"])
        for name, each in named:
            self.messages.append({"role": "tool", "tool_call_id": name, "content": each.result})


def obeys() -> Script:
    """An upstream that says what the request tells it to."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        says = orjson.loads(request.json()["metadata"]["says"])
        await reply(orjson.dumps(chat_wire.whole(says)))(request, writer)

    return script


@asynccontextmanager
async def coding(tmp_path: Path, **flags: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Run burnish with signals on."""
    flags = {"signals": {"enabled": True}} | flags
    async with upstream(obeys()) as server, calling(tmp_path, upstream=server.url, **flags) as client:
        await until(client, lambda found: found["upto"] is not None or not found["on"])
        yield client


async def until(client: httpx.AsyncClient, fits: Callable[[Json], object]) -> Json:
    """Wait until the status of signals fits; return it."""
    async with asyncio.timeout(within(LIMIT_S)):
        while not fits(found := (await client.get("/burnish/status")).json()["signals"]):
            await asyncio.sleep(POLL_S)
    return dict(found)


async def read(client: httpx.AsyncClient) -> Json:
    """Wait until all that was stored is read; return the status of signals."""
    counts = (await client.get("/burnish/status")).json()["counts"]
    return await until(client, lambda found: found["upto"] >= counts["completions"])


async def given(client: httpx.AsyncClient) -> list[Json]:
    """Return the feedback that came of signals, earliest first."""
    await read(client)
    listed = (await client.get("/v1/feedback", params={"source": "environment"})).json()["data"]
    return listed[::-1]


async def verdicts(client: httpx.AsyncClient) -> list[tuple[float, str]]:
    """Return reward and words of each, earliest first."""
    return [(each["reward"], each["tags"][1]) for each in await given(client)]


async def withheld(client: httpx.AsyncClient) -> list[str]:
    """Return why there was no good rating, earliest first."""
    return [each["words"] for each in (await read(client))["latest"] if each["good"] is None]
