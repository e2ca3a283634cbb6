"""Generated exchanges: a format's requests and answers, with whatever HTTP allows around them."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from functools import partial

import brotli
import zstandard

from tests.support.chance import ANSWERS, ASKS, Chance, Headers, write
from tests.support.exchanging import Asked, Exchange, Framing, Planned
from tests.support.formats import MODEL, Format

NAMES = ("default", "m", "org/model:tag", "default@v3", "gpt-5", "mödel")
"""What models are called by those who ask; the first means the upstream's own."""
OWN = "their-model"
"""What the upstream calls its own."""
FAILED = (
    201, 202, 204, 226, 304, 400, 401, 403, 404, 413, 418, 429, 451, 499, 500, 502, 503, 520, 529, 599,
)  # fmt: skip
ADDED = (b"x-burnish-completion-id",)
HOP: Headers = [
    (b"Keep-Alive", b"timeout=5"),
    (b"Proxy-Authorization", b"Basic eDp5"),
    (b"Proxy-Connection", b"keep-alive"),
    (b"TE", b"trailers"),
]
EARLY = (b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 2)
PACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": partial(brotli.compress, quality=1),
    b"zstd": zstandard.compress,
}


def exchange(form: Format, chance: Chance, number: int) -> Exchange:
    streamed = chance.maybe() if form.streamed is None else form.streamed
    model = chance.choice(NAMES)
    target, written = chance.choice(form.targets), write(form.request(chance, streamed), chance)
    asked = _asked(chance, "POST", target, _naming(written, model), number)
    asked.target = _in_path(target, model)
    arrives = OWN if model == NAMES[0] else model
    planned = _planned(chance, form, streamed)
    return Exchange(asked, planned, _in_path(target, arrives), _naming(written, arrives), ADDED)


def elsewhere(chance: Chance, number: int) -> Exchange:
    """An exchange of which burnish knows nothing."""
    method = chance.choice(("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"))
    drawn = "".join(chance.choices("abcXYZ019-._~!$&'()*+,;=:@/", k=chance.randrange(12)))
    path = re.sub(r"/\.+", "/", drawn)  # burnish refuses "/." and "/.."
    # A "?" with nothing behind it is lost: ASGI has no place for it.
    target = f"/other/x{path}{chance.choice(('', '%2Fa', '?a=%2Fb&c', '?q=%C3%BC+x&q=', '?//../x'))}"
    body = chance.randbytes(chance.randrange(99)) if method.startswith("P") or method == "DELETE" else b""
    asked = _asked(chance, method, target, body, number)
    return Exchange(
        asked, _answer(chance, 200, chance.randbytes(chance.randrange(200))), target, body, trailed=True
    )


def _naming(written: bytes, model: str) -> bytes:
    return written.replace(b'"' + MODEL.encode() + b'"', f'"{model}"'.encode())


def _in_path(target: str, model: str) -> str:
    quoted = {"org/model:tag": "org%2Fmodel:tag", "mödel": "m%C3%B6del"}.get(model, model)
    return target.replace(MODEL, quoted)


def _asked(chance: Chance, method: str, target: str, body: bytes, number: int) -> Asked:
    headers = [*chance.headers(ASKS), (b"X-Exchange", b"%d" % number), *chance.headers(ASKS)]
    hop = _hop(chance) + ([(b"X-Burnish-Session", b"s1")] if chance.maybe(0.2) else [])
    asked = Asked(method, target, headers, body, hop=hop)
    if body and chance.maybe(0.3):
        asked.chunks = chance.cut(body)
        asked.trailers = _trailers(chance)
    elif body and chance.maybe(0.1):
        asked.hop.append((b"Expect", b"100-continue"))
    return asked


def _planned(chance: Chance, form: Format, streamed: bool) -> Planned:
    if chance.maybe(0.2):
        said = write({"error": {"message": chance.text()}}, chance)
        failed = chance.choice([said, b"<html>Bad</html>", b"", chance.randbytes(30)])
        return _answer(chance, chance.choice(FAILED), failed)
    if not streamed:
        return _answer(chance, 200, form.whole(chance), "application/json")
    parts = form.stream(chance)
    planned = _answer(chance, 200, b"".join(parts), form.content_type)
    if chance.maybe(0.3) and b"Content-Encoding" not in dict(planned.headers):
        planned.chunks = parts  # as servers flush them
    return planned


def _answer(chance: Chance, status: int, body: bytes, content_type: str = "text/plain") -> Planned:
    headers = chance.headers(ANSWERS)
    if chance.maybe(0.9):
        headers.insert(chance.randint(0, len(headers)), (b"Content-Type", content_type.encode()))
    if body and chance.maybe(0.3):
        encoding = chance.choice(list(PACK))
        headers.append((b"Content-Encoding", encoding))
        body = PACK[encoding](body)
    framing: Framing = chance.choice(("length", "chunked", "chunked", "close"))
    planned = Planned(status, headers, chance.cut(body), framing, _hop(chance))
    if framing == "chunked":
        planned.trailers = _trailers(chance)
    if chance.maybe(0.1):
        planned.early = chance.choice(EARLY)
    return planned


def _hop(chance: Chance) -> Headers:
    """Headers that end at the next hop, some of them only because ``Connection`` says so."""
    if chance.maybe(0.7):
        return []
    named = chance.choice((b"X-Hop-Only", b"x-hOp-oNLy"))
    hop = [*chance.sample(HOP, 2), (named, chance.header_value()), (named.lower(), b"again")]
    return [*hop, (b"Connection", b"keep-alive, " + named.lower())]


def _trailers(chance: Chance) -> Headers:
    """Trailers, which must not become headers; a key may not stand there (RFC 9110 §6.5.1)."""
    return (
        [(b"X-Sum", b"1"), (b"x-Sum", b"2"), (b"Authorization", b"Bearer nobody")]
        if chance.maybe(0.2)
        else []
    )
