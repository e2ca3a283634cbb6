"""The page's routes: ``/`` for browsers, the files below ``/burnish/page/``, and what only the page asks for."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from burnish.config.config import Config
from burnish.parts.page.agents import agents_route
from burnish.parts.page.assets import DIGEST_CHARS, TYPES, Files
from burnish.parts.page.doctor import doctor_route
from burnish.parts.page.paths import ENGINE, FILES
from burnish.proxy.described import described
from burnish.proxy.http.errors import NotFound

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


def page_routes(config: Config) -> list[Route]:
    return [*_file_routes(), doctor_route(config), agents_route(config.data_dir)]


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
