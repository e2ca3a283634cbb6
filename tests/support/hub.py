"""A Hugging Face hub on two ports, as the real one has two hosts: the API redirects, and a CDN has the bytes."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.patience import within

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_a_secret"


@dataclass
class Asked:
    host: str
    """"hub" or "cdn"."""
    path: str
    headers: dict[str, str]


@dataclass
class Hub:
    """What the hub holds, how it misbehaves, and what it was asked."""

    repos: dict[str, dict[str, bytes]]
    gated: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    lies: dict[str, Any] = field(default_factory=dict)
    """Members of a file's announcement that differ from the truth: "size", "sha256"."""
    cut_after: int | None = None
    """The CDN closes each connection after so many bytes."""
    ranges: bool = True
    """Whether the CDN honours Range."""
    failing: int | None = None
    """A status that it answers to everything."""
    stopped: threading.Event | None = None
    """If set: the CDN stops after ``cut_after`` bytes, sets this, and keeps the connection open."""
    released: threading.Event = field(default_factory=threading.Event)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    cdn: str = ""

    def of(self, host: str) -> list[Asked]:
        return [each for each in self.asked if each.host == host]


@contextmanager
def hub(repos: dict[str, dict[str, bytes]], **more: Any) -> Iterator[Hub]:
    """Run a hub with these files: repository → path → content."""
    state = Hub(repos, **more)
    servers = [
        ThreadingHTTPServer(("127.0.0.1", 0), type(host, (_Handler,), {"state": state, "host": host}))
        for host in ("hub", "cdn")
    ]
    state.url, state.cdn = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield state
    finally:
        state.released.set()
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    host: str

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.asked.append(Asked(self.host, self.path, headers))
        parts = urlsplit(self.path)
        path = unquote(parts.path).strip("/")
        if self.state.failing:
            self._say(self.state.failing)
        elif self.host == "cdn":
            self._bytes(path)
        elif path.startswith("api/models/"):
            self._model(path.removeprefix("api/models/"))
        else:
            self._resolve(path)

    def _model(self, repo: str) -> None:
        if repo not in self.state.repos or (repo in self.state.private and not self._known()):
            # The real one says 401 to strangers, so that nobody learns which private ones there are.
            self._say(404 if self._known() else 401, "RepoNotFound")
            return
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": "0" * 40}
            | {"lfs": _lfs(content) | self.state.lies}
            for name, content in self.state.repos[repo].items()
        ]
        body = json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode()
        self._say(200, body=body)

    def _resolve(self, path: str) -> None:
        owner, name, _, commit, *file = path.split("/")
        if f"{owner}/{name}" in self.state.gated and not self._known():
            self._say(401, "GatedRepo")
            return
        content = self.state.repos[f"{owner}/{name}"]["/".join(file)]
        digest = hashlib.sha256(content).hexdigest()
        self.send_response(302)
        self.send_header("location", f"{self.state.cdn}/{owner}/{name}/{'/'.join(file)}?signature=x")
        self.send_header("x-repo-commit", commit)
        self.send_header("x-linked-size", str(len(content)))
        self.send_header("x-linked-etag", f'"{digest}"')
        self.send_header("content-length", "0")
        self.end_headers()

    def _bytes(self, path: str) -> None:
        owner, name, *file = path.split("/")
        content = self.state.repos[f"{owner}/{name}"]["/".join(file)]
        begins = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        start = int(begins[1]) if begins and self.state.ranges else 0
        self.send_response(206 if begins and self.state.ranges else 200)
        if begins and self.state.ranges:
            self.send_header("content-range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("content-length", str(len(content) - start))
        self.end_headers()
        end = len(content) if self.state.cut_after is None else start + self.state.cut_after
        self.wfile.write(content[start:end])
        if self.state.stopped and end < len(content):
            self.state.stopped.set()
            self.state.released.wait(within(60))
        self.close_connection = True

    def _known(self) -> bool:
        return self.headers.get("authorization") == f"Bearer {TOKEN}"

    def _say(self, status: int, code: str = "", body: bytes = b"") -> None:
        self.send_response(status)
        if code:
            self.send_header("x-error-code", code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def _lfs(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
