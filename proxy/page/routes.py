"""The page's routes: ``/`` for browsers, the files below ``/burnish/page/``, and what only the page asks for."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from burnish.proxy.config import Config
from burnish.proxy.described import described
from burnish.proxy.errors import NotFound
from burnish.proxy.page.agents import agents_route
from burnish.proxy.page.doctor import doctor_route
from burnish.proxy.page.paths import ENGINE, FILES

FOLDER = Path(__file__).parent / "files"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
"""Media types of the files that are served. Licences and notes beside them aren't."""
LATER = ("vendor/uplot",)
"""Beginnings of the files that a view loads when it needs them."""
MARK = "<!-- modules and styles -->"
HEADERS = {
    "cache-control": "no-cache",  # a browser asks each time, and gets 304 until burnish is upgraded
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def page_routes(config: Config) -> list[Route]:
    return [*_file_routes(), doctor_route(config), agents_route(config.data_dir)]


def _file_routes() -> list[Route]:
    """Return the routes of the files, which hold no data of users."""

    @described(
        "[the page](page.md), if `Accept` has `text/html`; otherwise the upstream answers",
        str,
        media_type="text/html",
    )
    async def index(request: Request) -> Response:
        answer = _answer(request, await asyncio.to_thread(_index), ".html")
        answer.headers["vary"] = "accept"  # other programs get the upstream's answer
        return answer

    @described("files of the page", str, media_type="text/javascript")
    async def file(request: Request) -> Response:
        path = FOLDER / request.path_params["path"]
        # The guard refuses paths with `..`, and there are no links in the folder.
        if path.suffix not in TYPES or not path.is_file():
            raise NotFound(f"the page has no file {request.path_params['path'][:200]!r}")
        return _answer(request, await asyncio.to_thread(path.read_bytes), path.suffix)

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


def _index() -> bytes:
    """Return the document. It names all modules, so that a browser loads them at once and not one after another."""
    document = (FOLDER / "index.html").read_text(encoding="utf-8")
    found = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*"))
    now = [name for name in found if not name.startswith(LATER)]
    styles = [f'<link rel="stylesheet" href="{FILES}{name}">' for name in now if name.endswith(".css")]
    modules = [f'<link rel="modulepreload" href="{FILES}{name}">' for name in now if name.endswith(".js")]
    return document.replace(MARK, "\n".join(styles + modules)).encode()


def _answer(request: Request, content: bytes, suffix: str) -> Response:
    """Answer with a file, or 304 if the browser has it."""
    # Not the time of the file: wheels may be unpacked with the same one each time.
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = HEADERS | {"etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=TYPES[suffix])
