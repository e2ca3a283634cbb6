"""What clients, raters, upstreams and engines wrote steers no terminal, whichever command prints it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support import chat_wire
from tests.support.inprocess import behind
from tests.support.program import call, run
from tests.support.upstream import Received, Script, by_request, reply, upstream

HOSTILE = "tea" + "".join(
    (
        "\x1b]0;title\x07",  # sets the window's title
        "\x1b[2J",  # clears the screen
        "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",  # a link
        "\x9b31m",  # the same as ESC [, in one character
        "\u202egood",  # from right to left
        "\u2066gpj",
        "[red]markup[/red]",
    )
)
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What must never come out."""
COMMANDS = [
    tuple(HOSTILE if word == "HOSTILE" else word for word in line.split())
    for line in (
        "status", "history", "history --passthrough", "regenerations", "raters", "doctor", "chat",
        "instructions", "instructions add HOSTILE", "instructions edit HOSTILE x",
        "good HOSTILE", "undo", "undo HOSTILE", "rate HOSTILE good", "rate last HOSTILE",
        "adapters list", "adapters promote HOSTILE", "connect HOSTILE", "forget --user HOSTILE",
    )
] + [("status", "--url", f"http://{HOSTILE}")]  # fmt: skip
FAULT = {"error": {"message": HOSTILE}}


@by_request
def hostile(request: Received) -> Script:
    """Answer completions in hostile words, refuse the second of three, and anything else."""
    if not request.target.endswith("/chat/completions") or b"refuse" in request.body:
        return reply(orjson.dumps(FAULT), status="400 Bad Request")
    return reply(orjson.dumps(chat_wire.whole({"content": HOSTILE}, model=HOSTILE)))


async def printed(url: str, *command: str) -> str:
    env = {"BURNISH_UPSTREAM": url, "BURNISH_TRAIN__ENABLED": "false"}
    program = run if command[0] == "chat" else call  # only a main thread can listen for Ctrl-C
    done = await asyncio.to_thread(program, *command, url=url, stdin="hello\nn\n", env=env)
    assert "Traceback" not in done.stderr
    shown = done.stdout + done.stderr
    assert shown
    assert RAW.search(shown) is None, (command, RAW.findall(shown), shown)
    return shown


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
async def test_no_command_prints_what_steers_a_terminal(tmp_path: Path, form: tuple[str, ...]) -> None:
    async with behind(tmp_path, hostile, instructions=True) as (client, _):
        for text in (HOSTILE, "refuse", HOSTILE):
            body = {"model": HOSTILE, "messages": [{"role": "user", "content": text}]}
            answer = await client.post("/v1/chat/completions", json=body)
        rated = {"completion_id": answer.headers["x-burnish-completion-id"], "rating": "bad"}
        await client.post("/v1/feedback", json=rated | {"comment": HOSTILE})
        # A name in a header is bytes; read as Latin-1, some are control characters.
        await client.post("/v1/feedback", json=rated, headers={b"x-burnish-user": b"bob[red]\x9b31m"})
        await client.post("/v1/embeddings%1b]0;title%07%c2%9b2J", json={"model": HOSTILE})
        url = str(client.base_url)
        shown = {command: await printed(url, *command, *form) for command in COMMANDS}
    if not form:
        assert "[red]markup[/red]" in shown["history",], "markup is shown, not obeyed"
        assert "bob[red]" in shown["raters",]
    else:
        first = json.loads(shown["history",])["data"][0]
        assert first["reply"]["content"] == HOSTILE, "JSON loses nothing"


async def test_nor_do_versions_and_runs_of_somebody_elses_burnish() -> None:
    event = {"at": "2026-01-01T00:00:00", "state": "live", "reason": HOSTILE}
    check = {"kind": "sound", "name": "kl", "passed": False, "text": HOSTILE}
    example = {"prompt": HOSTILE, "why": HOSTILE, "before": HOSTILE, "after": HOSTILE}
    version = {"version": 1, "name": HOSTILE, "state": "live", "reason": HOSTILE, "parent": 0, "ratings": 1}
    version["episodes"] = 0
    groups = [{"kind": "sound", "title": HOSTILE}]
    verdict = {"outcome": "rejected", "headline": HOSTILE, "groups": groups}
    verdict |= {"checks": [check], "examples": [example]}
    answers: dict[str, dict[str, Any]] = {
        "adapters": {"live": 1, "adapters": [version]},
        "adapters/1": version | {"manifest": None, "events": [event], "verdict": verdict},
        "adapters/1/promote": FAULT,
        "resume": {"reason": HOSTILE},
        "train": FAULT,
    }

    def answer(request: Received) -> Script:
        content = answers[request.target.removeprefix("/burnish/").rstrip("?")]
        return reply(orjson.dumps(content), status="409 Conflict" if content is FAULT else "200 OK")

    async with upstream(by_request(answer)) as server:
        for command in ("adapters list", "adapters show 1", "adapters promote 1", "resume", "train"):
            assert "[red]markup[/red]" in (await printed(server.url, *command.split())).replace("\n", "")


async def test_names_and_reasons_with_control_characters_are_refused(tmp_path: Path) -> None:
    async with behind(tmp_path, hostile) as (client, _):
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        answer = await client.post("/v1/chat/completions", json=body)
        rated = {"completion_id": answer.headers["x-burnish-completion-id"], "rating": "bad"}
        for name in ("a\x1b[2J", "a\x9b", "a\nb", "a\u202eb"):
            for field in ({"rater": name}, {"tags": [name]}):
                refused = await client.post("/v1/feedback", json=rated | field)
                assert refused.status_code == 422
                assert "one line without control characters" in refused.json()["error"]["message"]
        for fine in ("Zoë", "太郎", "עדה", "👩‍🔬"):
            rating = rated | {"rater": fine, "tags": [fine]}
            assert (await client.post("/v1/feedback", json=rating)).status_code == 201
