"""The page's routes: ``/`` for browsers, the files below ``/burnish/page/``, and what only the page asks for."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from burnish.config.config import Config
from burnish.parts.connect import AGENTS, Agent, Home, Place, connection
from burnish.parts.page.assets import DIGEST_CHARS, TYPES, Files
from burnish.parts.page.doctor import doctor_route
from burnish.parts.page.paths import ENGINE, FILES
from burnish.proxy.described import described, flat, list_of
from burnish.proxy.http.errors import NotFound
from burnish.proxy.json_http import json_response

DIGEST = re.compile(rf"[0-9a-f]{{{DIGEST_CHARS}}}")
KEEP = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
"""A browser asks each time, and gets 304 if nothing changed."""
HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

AGENT = flat("Agent", name=str, title=str, installed=bool, connected=bool, lines=list[str], rating=str | None)


def page_routes(config: Config) -> list[Route]:
    return [*_file_routes(), doctor_route(config), _agents_route(config.data_dir)]


def _file_routes() -> list[Route]:
    files = Files()

    @described(
        "[the page](page.md), if `Accept` has `text/html`; otherwise the upstream answers",
        str,
        media_type="text/html",
    )
    async def index(request: Request) -> Response:
        await asyncio.to_thread(files.refresh)
        answer = _answer(request, files.document, ".html")
        answer.headers["vary"] = "accept"  # other programs get the upstream's answer
        return answer

    @described("files of the page", str, media_type="text/javascript")
    async def file(request: Request) -> Response:
        given: str = request.path_params["path"]
        digest, _, name = given.partition("/")
        if digest == files.digest and (content := files.get(name)) is not None:
            return _answer(request, content, PurePosixPath(name).suffix, KEEP)
        # Another digest is that of a tab from before an upgrade.
        name = name if DIGEST.fullmatch(digest) else given
        await asyncio.to_thread(files.refresh)
        if (content := files.get(name)) is None:
            raise NotFound(f"the page has no file {name[:200]!r}")
        return _answer(request, content, PurePosixPath(name).suffix)

    @described(
        "go on to the engine's own page, below this path", str, media_type="text/html", statuses=(307,)
    )
    async def to_engine(request: Request) -> Response:
        return RedirectResponse(ENGINE)

    return [
        Route("/", index),
        Route(FILES + "{path:path}", file),
        Route(ENGINE.rstrip("/"), to_engine),
    ]


def _answer(request: Request, content: bytes, suffix: str, keep: str = ASK_AGAIN) -> Response:
    """Answer with a file, or 304 if the browser has it."""
    # Not the time of the file: wheels may be unpacked with the same one each time.
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = HEADERS | {"etag": tag, "cache-control": keep}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=TYPES[suffix])


def _agents_route(data_dir: Path) -> Route:
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
