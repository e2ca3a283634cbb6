"""``GET /burnish/agents``: the agents on this machine, and what to type to connect one."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.parts.connect import AGENTS, Agent, Home, Place, connection
from burnish.proxy.described import described, flat, list_of
from burnish.proxy.json_http import json_response

AGENT = flat("Agent", name=str, title=str, installed=bool, connected=bool, lines=list[str], rating=str | None)


def agents_route(data_dir: Path) -> Route:
    @described(
        "the agents that burnish can connect: `installed`, `connected`, and the `lines` to type",
        flat("Agents", agents=list_of(AGENT)),
    )
    async def agents(request: Request) -> Response:
        return json_response({"agents": await asyncio.to_thread(_agents, data_dir)})

    return Route("/burnish/agents", agents)


def _agents(data_dir: Path) -> list[dict[str, Any]]:
    home, program = Home(), _program()
    return [_described(agent, home, data_dir, program) for agent in AGENTS.values()]


def _described(agent: Agent, home: Home, data_dir: Path, program: str) -> dict[str, Any]:
    lines = [f"{program} connect {agent.name}"]
    if agent.changes(Place(""), home):  # of others, the first line prints what is to be done by hand
        lines.append(agent.program)
    return {
        "name": agent.name,
        "title": agent.title,
        "installed": agent.installed(home),
        "connected": bool(connection.recorded(connection.record_file(data_dir, agent.name))),
        "lines": lines,
        "rating": agent.rating,
    }


def _program() -> str:
    """Return the command that starts this installation in the user's shell."""
    beside = Path(sys.executable).with_name("burnish")
    found = shutil.which("burnish")
    if found and Path(found).resolve() == beside.resolve():
        return "burnish"
    return str(beside) if beside.is_file() else f"{sys.executable} -m burnish"
