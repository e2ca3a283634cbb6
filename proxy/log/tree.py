"""The message tree, pure: what makes two messages the same, and the digests that name messages, nodes and paths.

A message has two forms. Its *stored* form is what was sent, without nulls, empty lists and cache marks. Its
*identity* is only what clients send back unchanged: role, text and tool calls; no reasoning, no ids, no white space
at the ends. Nodes chain stored forms, so that a context can be loaded exactly as it was; keys chain identities, so
that a reply is found again however the client dressed it.

Digests are BLAKE2b of 16 bytes: compact, and no two messages meet by accident.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from burnish.proxy.log.credentials import holds_credential
from burnish.proxy.messages import of_a_person, part_text
from burnish.proxy.surfaces.deltas import BESIDE_THE_TEXT

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Keeps the values of at least the latest ``limit`` digests, and of at most twice as many.

    Two generations instead of a list in order of use: a look-up costs one access to a dict, mostly.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._young: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}

    def get(self, digest: bytes) -> Value | None:
        """Return the value; None if it was never put in, or has been dropped."""
        if digest in self._young:
            return self._young[digest]
        if digest not in self._old:
            return None
        value = self._old[digest]
        self.put(digest, value)
        return value

    def put(self, digest: bytes, value: Value) -> None:
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, {}
        self._young[digest] = value

    def clear(self) -> None:
        self._young, self._old = {}, {}


Digest = bytes

DIGEST_BYTES = 16
ROOT: Digest = bytes(DIGEST_BYTES)
"""Parent of every first message."""

EMPTY: tuple[Any, ...] = (None, "", [], {})
PLAIN = frozenset({"role", "content"})
"""What most messages have."""
THOUGHTS_BEGIN = "<think>"
THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
"""Reasoning that a model writes into its text, and that many clients cut out before they send it back."""

INTEGERS = (-(2.0**63), 2.0**64)
"""Whole numbers from the one to before the other are integers; beyond they are floating-point however written."""

RECENT_MESSAGES = 4096
"""Clients resend their history each turn: messages whose digests are cached."""


class PathStep(NamedTuple):
    """One message on its path from the root."""

    role: str
    body: bytes
    """Stored form, as JSON."""
    content: Digest
    """Of the body."""
    identity: Digest
    node: Digest
    """H(parent's node, content)."""
    key: Digest
    """H(parent's key, identity)."""
    empty: bool
    """True if it has neither text nor calls."""
    human: bool
    """True if a person speaks in it; results of tools and additions of clients don't count."""
    credential: bool
    """True if it, or a message before it, holds a key or a token."""


_Place = tuple[str, Digest, Digest, Digest, bool, bool, bool]
"""Facts that follow from a stored form and the node above it: the fields of a step but body and content."""

_places: Recent[_Place] = Recent(RECENT_MESSAGES)
_searched: Recent[bool] = Recent(RECENT_MESSAGES)


_hashed = partial(blake2b, digest_size=DIGEST_BYTES)


def digest(content: bytes) -> Digest:
    return _hashed(content).digest()


def path(messages: Sequence[dict[str, Any]]) -> list[PathStep]:
    """Return the steps of a context, root first."""
    steps: list[PathStep] = []
    # A longer context would push out all others, and itself.
    remember = len(messages) <= RECENT_MESSAGES
    for message in messages:
        steps.append(step(message, steps[-1] if steps else None, remember=remember))
    return steps


def step(message: dict[str, Any], parent: PathStep | None, *, remember: bool = True) -> PathStep:
    """Return the step that a message makes after its parent."""
    body = memoryview(orjson.dumps(stored(message))).tobytes()  # orjson's own result holds 4 KB at least
    content = _hashed(body).digest()
    above, key_above = (parent.node, parent.key) if parent else (ROOT, ROOT)
    address = above + content
    place = _places.get(address)
    if place is None:
        role, pieces, calls = essence = _said(message)
        identity = _identity(essence)
        key = _hashed(key_above + identity).digest()
        human = role == "user" and of_a_person(message)
        credential = bool(parent and parent.credential) or (
            credential_in(content, body) if remember else holds_credential(body)
        )
        node = _hashed(address).digest()
        place = (role, identity, node, key, not pieces and not calls, human, credential)
        if remember:
            _places.put(address, place)
    role, identity, node, key, empty, human, credential = place
    return PathStep(role, body, content, identity, node, key, empty, human, credential)


def credential_in(content: Digest, body: bytes) -> bool:
    """Return whether a text of this digest holds a key or a token; what comes again is searched once."""
    verdict = _searched.get(content)
    if verdict is None:
        verdict = holds_credential(body)
        _searched.put(content, verdict)
    return verdict


def last_user_message(context: Sequence[PathStep]) -> PathStep | None:
    """Return the user message that a context ends with: the last of a person, else the last one."""
    for message in reversed(context):
        if message.human:
            return message
    return next((message for message in reversed(context) if message.role == "user"), None)


def begins_turn(context: Sequence[PathStep]) -> bool:
    """True if a person spoke since the last answer, or there is none yet."""
    for message in reversed(context):
        if message.human or message.role == "assistant":
            return message.human
    return True


def stored(message: dict[str, Any]) -> dict[str, Any]:
    """Return the stored form: one text part becomes a string, empty values go."""
    content = message.get("content")
    if content and type(content) is str and message.keys() == PLAIN and message["role"]:
        return message  # as most are
    fields = {key: field for key, field in message.items() if field not in EMPTY and key != "cache_control"}
    if isinstance(fields.get("content"), list):
        fields["content"] = _flattened([_unmarked(part) for part in fields["content"]])
    return fields


def loaded(body: bytes) -> dict[str, Any]:
    """Return a message from its stored form, with a ``content`` again even when it was empty."""
    message: dict[str, Any] = orjson.loads(body)
    if "content" not in message:
        message["content"] = None if message.get("tool_calls") or message.get("function_call") else ""
    return message


def _unmarked(part: Any) -> Any:
    if isinstance(part, dict) and "cache_control" in part:
        return {key: field for key, field in part.items() if key != "cache_control"}
    return part


def _flattened(parts: list[Any]) -> Any:
    if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"type", "text"}:
        text = part_text(parts[0])
        return parts if text is None else text
    return parts


def _said(message: dict[str, Any]) -> tuple[str, list[Any], list[Any]]:
    """Return role, pieces of content, and calls."""
    role = str(message.get("role") or "assistant")
    pieces: list[Any] = []
    content = message.get("content")
    if (
        type(content) is str
        and message.keys() == PLAIN
        and (role != "assistant" or THOUGHTS_BEGIN not in content)
    ):
        words = content.strip()  # as in most
        return role, [words] if words else [], []
    for part in content if isinstance(content, list) else [content]:
        if role == "assistant" and isinstance(part, dict) and part.get("type") in BESIDE_THE_TEXT:
            continue  # of replies the log keeps them in members of their own
        text = part_text(part)
        if text is None:
            pieces += [_unmarked(part)] if part not in EMPTY else []
        elif pieces and isinstance(pieces[-1], str):
            pieces[-1] += text
        else:
            pieces.append(text)
    if role == "assistant" and pieces and isinstance(pieces[0], str) and THOUGHTS_BEGIN in pieces[0]:
        pieces[0] = THOUGHTS.sub("", pieces[0])
    stripped = [piece.strip() if isinstance(piece, str) else piece for piece in pieces]
    return role, [piece for piece in stripped if piece not in EMPTY], _calls(message)


def _calls(message: dict[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    functions = [call.get("function") or call.get("custom") or call for call in _objects(calls)]
    functions += _objects([message.get("function_call")])
    return [[call.get("name"), _arguments(call.get("arguments", call.get("input")))] for call in functions]


def _identity(essence: tuple[str, list[Any], list[Any]]) -> Digest:
    return digest(orjson.dumps(essence, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS))


def _objects(values: Any) -> list[dict[str, Any]]:
    return (
        [member for member in values if isinstance(member, dict) and member]
        if isinstance(values, list)
        else []
    )


def _arguments(arguments: Any) -> Any:
    """Return arguments as a value: clients parse them and write them again with other white space and numbers."""
    if not isinstance(arguments, str):
        return _counted(arguments)
    try:
        return _counted(orjson.loads(arguments))
    except orjson.JSONDecodeError:
        return arguments.strip()


def _counted(argument: Any) -> Any:
    """Return a value in which whole numbers are integers: JavaScript writes 1.0 as 1."""
    if isinstance(argument, float):
        return int(argument) if argument.is_integer() and INTEGERS[0] <= argument < INTEGERS[1] else argument
    if isinstance(argument, dict):
        return {name: _counted(part) for name, part in argument.items()}
    return [_counted(part) for part in argument] if isinstance(argument, list) else argument
