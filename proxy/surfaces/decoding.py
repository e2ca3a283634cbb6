"""Undo a response's content encoding, for the log only. A truncated body is decoded as far as it goes."""

from __future__ import annotations

import zlib
from collections.abc import Callable

DECODED_LIMIT_BYTES = 128 * 1024 * 1024
"""Four times what the relay keeps of a response; bounds decompression bombs."""


class Undecodable(ValueError):
    """The bytes cannot be decoded; the message says why."""


def decode(body: bytes, content_encoding: str) -> bytes:
    """Undo the encodings that ``content-encoding`` lists, in reverse order. Raises Undecodable."""
    for encoding in reversed([name.strip().lower() for name in content_encoding.split(",")]):
        if encoding in ("", "identity"):
            continue
        decoder = DECODERS.get(encoding)
        if decoder is None:
            raise Undecodable(f"unknown content-encoding {encoding!r}")
        body = decoder(body)
    return body


def _gzip(body: bytes) -> bytes:
    parts: list[bytes] = []
    left = DECODED_LIMIT_BYTES
    # A gzip body may have several members.
    while body and left > 0:
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(body, left))
        except zlib.error as error:
            if parts:
                break
            raise Undecodable(f"not gzip: {error}") from error
        left -= len(parts[-1])
        body = member.unused_data
    return b"".join(parts)


def _deflate(body: bytes) -> bytes:
    # "deflate" means zlib (RFC 9110), but some servers send it raw.
    for wbits in (15, -15):
        try:
            return zlib.decompressobj(wbits=wbits).decompress(body, DECODED_LIMIT_BYTES)
        except zlib.error:
            continue
    raise Undecodable("neither zlib nor raw deflate")


def _brotli(body: bytes) -> bytes:
    import brotli

    try:
        unpacked = brotli.Decompressor().process(body, output_buffer_limit=DECODED_LIMIT_BYTES)
        return bytes(unpacked[:DECODED_LIMIT_BYTES])
    except brotli.error as error:
        raise Undecodable(f"not brotli: {error}") from error


def _zstd(body: bytes) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            return reader.read(DECODED_LIMIT_BYTES)
    except zstandard.ZstdError as error:
        raise Undecodable(f"not zstd: {error}") from error


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
