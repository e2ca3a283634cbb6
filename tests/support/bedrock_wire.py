"""What Bedrock's Converse API sends: a message whole, and as the binary events of a stream."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import orjson

Json = dict[str, Any]
USAGE = {"inputTokens": 17, "outputTokens": 7, "totalTokens": 24}
EVENTS = "application/vnd.amazon.eventstream"
"""Content type of a stream."""
STRING = 7
"""Type of a header's value."""


def message(text: str) -> Json:
    said = {"role": "assistant", "content": [{"text": text}]}
    return {
        "output": {"message": said},
        "stopReason": "end_turn",
        "usage": USAGE,
        "metrics": {"latencyMs": 1},
    }


def message_events(*pieces: str) -> list[bytes]:
    """The events of a streamed message, one piece to a delta."""
    return [
        event("messageStart", {"role": "assistant"}),
        *(event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": each}}) for each in pieces),
        event("contentBlockStop", {"contentBlockIndex": 0}),
        event("messageStop", {"stopReason": "end_turn"}),
        event("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}),
    ]


def event(kind: str, content: Json) -> bytes:
    """A message of AWS's event stream: lengths, their checksum, headers, payload, checksum of all."""
    given = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(_header(name, value) for name, value in given.items())
    payload = orjson.dumps(content)
    lengths = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    framed = lengths + struct.pack("!I", crc32(lengths)) + headers + payload
    return framed + struct.pack("!I", crc32(framed))


def _header(name: str, value: str) -> bytes:
    return (
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", STRING, len(value)) + value.encode()
    )
