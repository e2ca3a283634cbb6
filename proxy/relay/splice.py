"""Changes a JSON request without parsing it: replaces ``model``, appends members. All other bytes stay.

A few engines need further members in the body that name a version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_AFTER_KEY = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_END = re.compile(rb"[ \t\r\n]*\}")


def splice_model(body: bytes, model: str) -> bytes:
    """Return the body with the value of every top-level ``model`` key replaced; all other bytes stay.

    ``body`` must be valid JSON with an object at its top whose ``model``, if any, is a string. A body
    without the key gets one.
    """
    value = orjson.dumps(model)
    spans = list(_top_level_values(body))
    if not spans:
        return _with_key(body, value)
    parts: list[bytes] = []
    end = 0
    for start, stop in spans:
        parts += [body[end:start], value]
        end = stop
    return b"".join([*parts, body[end:]])


def append_members(body: bytes, members: Sequence[tuple[str, Any]]) -> bytes:
    """Return the body with members added at its end; there they win over earlier ones of the same name.

    ``body`` must be valid JSON with an object that is not empty at its top.
    """
    if not members:
        return body
    end = body.rindex(b"}")
    return body[:end] + b"," + orjson.dumps(dict(members))[1:-1] + body[end:]


def _top_level_values(body: bytes) -> list[tuple[int, int]]:
    """Return the spans of the values of all top-level keys that spell "model" (escapes included)."""
    spans: list[tuple[int, int]] = []
    depth = 0
    value_at = -1
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif token.start() == value_at:
            spans.append(token.span())
        elif depth == 1 and (colon := _AFTER_KEY.match(body, token.end())) and _spells_model(token.group()):
            value_at = colon.end()
    return spans


def _spells_model(token: bytes) -> bool:
    return token == b'"model"' or (b"\\" in token and json.loads(token) == "model")


def _with_key(body: bytes, value: bytes) -> bytes:
    brace = body.index(b"{") + 1
    return body[:brace] + b'"model":' + value + (b"" if _END.match(body, brace) else b",") + body[brace:]
