"""``burnish instructions`` before a real burnish, which is killed in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from tests.support.burnish import Burnish, start
from tests.support.patience import within
from tests.support.program import ask, call, said
from tests.support.upstream import completion, reply, upstream


async def test_instructions_are_listed_added_changed_removed_and_survive_a_kill(tmp_path: Path) -> None:
    async with upstream(reply(completion())) as server:
        await asyncio.to_thread(_using_instructions, tmp_path / "data", server.url)
    assert "- three sentences at most" in server.requests[-1].body.decode()


def _using_instructions(data: Path, engine: str) -> None:
    settings = {"BURNISH_UPSTREAM": engine, "BURNISH_ENGINE": "none", "BURNISH_MODEL": "mock"}
    burnish = start(data, env=settings)
    try:
        _while_off(burnish)
        burnish.kill()  # what was acknowledged is on the disk
        burnish = start(data, env=settings | {"BURNISH_INSTRUCTIONS": "on"})
        _while_on(burnish)
    finally:
        burnish.kill()


def _while_off(burnish: Burnish) -> None:
    url = burnish.url
    ask(url)
    nothing = call("instructions", url=url).stdout
    assert "instructions are off" in nothing
    assert "BURNISH_INSTRUCTIONS=true" in nothing
    assert "no instructions yet" in nothing
    said("bad", "too [bold]long[/]", url=url)
    (instruction,) = said("instructions", url=url)["data"]
    listed = call("instructions", url=url).stdout
    assert f"{instruction['id']}  too [bold]long[/]" in listed
    assert "they are off" in call("status", url=url).stdout
    changed = said("instructions", "edit", instruction["id"], "three sentences at most", url=url)
    assert (changed["id"], changed["comment"]) == (instruction["id"], "too [bold]long[/]")
    assert "added" in call("instructions", "add", "in German", url=url).stdout


def _while_on(burnish: Burnish) -> None:
    url = burnish.url
    found = said("instructions", url=url)
    assert found["instructions"]
    assert [each["text"] for each in found["data"]] == ["in German", "three sentences at most"]
    listed = call("instructions", url=url).stdout
    assert "off" not in listed
    assert "(your comment: too [bold]long[/])" in listed
    assert "removed" in call("instructions", "remove", found["data"][0]["id"], url=url).stdout
    ask(url)
    assert "1 in the system prompt" in call("status", url=url).stdout
    assert "with instructions" in call("history", "-n", "1", url=url).stdout
    gone = call("instructions", "remove", found["data"][0]["id"], url=url)
    assert (gone.returncode, found["data"][0]["id"] in gone.stderr) == (1, True)
    assert call("instructions", "add", "!", url=url).returncode == 2
    left = httpx.get(f"{url}/burnish/instructions", timeout=within(60)).json()
    assert left["text"].endswith(":\n- three sentences at most")
