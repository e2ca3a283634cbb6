"""Answers that servers gave, as people reported them, and further ones of the same kinds: what burnish makes of each.

``answers/*.json``: request, status, headers and raw pieces, and the right reading. A reading without ``usable`` says
nothing of that.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.proxy.messages import text_of
from burnish.proxy.surfaces.ends import finished
from tests.support.inprocess import behind
from tests.support.upstream import Received, Script, reply

Json = dict[str, Any]
ANSWERS: dict[str, dict[str, Json]] = {
    file.stem: json.loads(file.read_text())
    for file in sorted((Path(__file__).parent / "answers").glob("*.json"))
}


def script_of(answer: Json) -> Script:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        headers = "".join(f"{name}: {text}\r\n" for name, text in answer["headers"].items())
        head = f"HTTP/1.1 {answer['status']} S\r\n{headers}transfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for frame in map(str.encode, answer["frames"]):
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return script


def reading(row: Json) -> Json:
    """Return a row of the log in the words of ``right``."""
    message = row["reply"] or {}
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    thought = message.get("reasoning_content") or message.get("reasoning")
    return {
        "text": text_of(message) if row["reply"] else None,
        "outcome": row["outcome"],
        "finish": row["finish_reason"],
        "ended": finished(row["finish_reason"], row["params"]),
        "calls": [[call["name"], call["arguments"]] for call in calls],
        "thought": thought,
        "transcript": (message.get("audio") or {}).get("transcript"),
    }


@pytest.mark.parametrize("surface", ANSWERS)
async def test_what_is_sent_remembered_and_taught(tmp_path: Path, surface: str) -> None:
    wrong: Json = {}
    async with behind(tmp_path, reply(b"")) as (client, upstream):
        for name, answer in ANSWERS[surface].items():
            upstream.script = script_of(answer)
            if differing := await differing_in(client, answer):
                wrong[name] = differing
    assert not wrong, json.dumps(wrong, indent=1)


async def differing_in(client: httpx.AsyncClient, answer: Json) -> Json:
    """Return what differs from the right reading of an answer: what it should be, and what it is."""
    got = await client.post(answer["path"], json=answer["body"])
    assert (got.status_code, got.text) == (answer["status"], "".join(answer["frames"]))
    completion_id = got.headers["x-burnish-completion-id"]
    read = reading((await client.get(f"/burnish/completions/{completion_id}")).json())
    right = {"finish": None, "calls": [], "thought": None, "transcript": None} | answer["right"]
    if "usable" in right:
        rating = {"completion_id": completion_id, "rating": "good"}
        rated = (await client.post("/v1/feedback", json=rating)).json()
        rows = (await client.get("/burnish/rated", params={"limit": 100})).json()["data"]
        (obstacle,) = [row["obstacle"] for row in rows if row["id"] == completion_id]
        read |= {"usable": rated["usable"], "exported": obstacle is None, "why": rated["reason"]}
        right["exported"] = right["usable"]
        if right.setdefault("why", None) and right["why"] in str(rated["reason"]):
            read["why"] = right["why"]
    return {key: [right[key], is_read] for key, is_read in read.items() if right[key] != is_read}
