"""An upstream that answers every request alike, and records what arrives."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.proxy.traffic import free_port

ANSWER = b'{"id": "msg_1", "type": "message", "role": "assistant", "model": "mock", "content": []}'
UNEQUAL = frozenset({"host", "connection", "content-length", "transfer-encoding"})
"""Headers that belong to one hop, or follow from its framing."""
BOUNDARY = re.compile(rb"boundary=([^;]+)")
"""Of a multipart body: clients draw it by lot."""


class Recording:
    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[str] = []
        """Method, target, headers and a digest of the body."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may leave when they like."""


@contextmanager
def recording() -> Iterator[Recording]:
    port = free_port()
    upstream = Recording(f"http://127.0.0.1:{port}")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = _body(self)
            upstream.requests.append(_recorded(self, body))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(ANSWER)))
            self.end_headers()
            self.wfile.write(ANSWER)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _Server(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield upstream
        finally:
            server.shutdown()
            thread.join()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("transfer-encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("content-length", 0)))
    parts = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


def _recorded(request: BaseHTTPRequestHandler, body: bytes) -> str:
    headers = {name.lower(): value for name, value in request.headers.items() if name.lower() not in UNEQUAL}
    if boundary := BOUNDARY.search(headers.get("content-type", "").encode()):
        body = body.replace(boundary[1], b"boundary")
        headers["content-type"] = headers["content-type"].replace(boundary[1].decode(), "boundary")
    named = ", ".join(f"{name}: {value}" for name, value in sorted(headers.items()))
    return f"{request.command} {request.path} {hashlib.sha256(body).hexdigest()[:16]} {{{named}}}"
