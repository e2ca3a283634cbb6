"""Merge the deltas of a stream, or a whole answer, into chat choices."""

from __future__ import annotations

from typing import Any

CALL_TEXTS = {"function": "arguments", "custom": "input"}
"""Kind of tool call → its member that arrives in pieces."""

MERGED_BY_HAND = frozenset({"role", "tool_calls", "function_call"})


class Pieces(list[str]):
    """Pieces of a text; joining once at the end keeps long streams linear."""


class ChoiceMerger:
    """Collects the choices of an answer, by index."""

    def __init__(self) -> None:
        self._choices: dict[int, dict[str, Any]] = {}
        self._in_pieces = False

    @property
    def found(self) -> bool:
        return bool(self._choices)

    @property
    def finished(self) -> bool:
        """True if every choice has a finish reason."""
        return self.found and all(choice["finish_reason"] for choice in self._choices.values())

    def choices(self) -> list[dict[str, Any]]:
        """Return the choices with a message, by index."""
        replies = [self._choices[index] for index in sorted(self._choices) if self._choices[index]["message"]]
        return [_without_indexes(_join(choice) if self._in_pieces else choice) for choice in replies]

    def whole(self, choice: dict[str, Any]) -> None:
        """Add a choice of an answer that wasn't streamed."""
        message = choice.get("message")
        merged = self._at(choice)
        merged["message"] = {"role": "assistant", **message} if isinstance(message, dict) else {}
        merged["finish_reason"] = choice.get("finish_reason")
        if isinstance(choice.get("logprobs"), dict):
            merged["logprobs"] = choice["logprobs"]

    def delta(self, choice: dict[str, Any]) -> None:
        """Add a delta."""
        self._in_pieces = True
        merged = self._at(choice)
        merged["finish_reason"] = choice.get("finish_reason") or merged["finish_reason"]
        if isinstance(choice.get("logprobs"), dict):
            _extend(merged.setdefault("logprobs", {}), choice["logprobs"])
        delta = choice.get("delta")
        if isinstance(delta, dict) and delta:
            _merge_message(merged["message"], delta)

    def _at(self, choice: dict[str, Any]) -> dict[str, Any]:
        index = choice.get("index")
        index = index if isinstance(index, int) else 0
        found = self._choices.get(index)
        if found is None:
            found = self._choices[index] = {"index": index, "message": {}, "finish_reason": None}
        return found


def _merge_message(message: dict[str, Any], delta: dict[str, Any]) -> None:
    text = delta.get("content")
    if len(delta) == 1 and isinstance(text, str) and isinstance(pieces := message.get("content"), Pieces):
        pieces.append(text)  # the usual case
        return
    role = delta.get("role")
    message["role"] = role if isinstance(role, str) and role else message.get("role", "assistant")
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            _merge_call(message.setdefault("tool_calls", []), call)
    function_call = delta.get("function_call")
    if isinstance(function_call, dict):
        _merge_function(message.setdefault("function_call", {}), function_call, "arguments")
    _extend(message, {key: value for key, value in delta.items() if key not in MERGED_BY_HAND})


def _extend(target: dict[str, Any], piece: dict[str, Any]) -> None:
    """Append texts and lists, merge objects, replace other values."""
    for key, value in piece.items():
        old = target.get(key)
        if isinstance(value, str):
            if not isinstance(old, Pieces):
                target[key] = old = Pieces()
            old.append(value)
        elif isinstance(value, list) and isinstance(old, list) and not isinstance(old, Pieces):
            old.extend(value)
        elif isinstance(value, dict) and isinstance(old, dict):
            _extend(old, value)
        elif value or old is None:
            target[key] = value


def _merge_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    call = call_of(calls, piece)
    if call is None:
        call = {"id": None, "type": "function", "index": piece.get("index")}
        calls.append(call)
    call["id"] = call["id"] or piece.get("id")
    if isinstance(piece.get("type"), str) and piece["type"]:
        call["type"] = piece["type"]
    for kind, text in CALL_TEXTS.items():
        if isinstance(piece.get(kind), dict):
            _merge_function(call.setdefault(kind, {}), piece[kind], text)


def call_of(calls: list[dict[str, Any]], piece: dict[str, Any]) -> dict[str, Any] | None:
    """Find the call that a piece continues: by index, else by id, else the latest.

    Some servers give all calls the index 0, or none, and distinguish them by id only.
    """
    index, identity = piece.get("index"), piece.get("id")
    same = [call for call in calls if index is None or call["index"] == index]
    if not same:
        return None
    if identity and (known := [call for call in same if call["id"] == identity]):
        return known[-1]
    return None if identity and same[-1]["id"] else same[-1]


def _merge_function(function: dict[str, Any], piece: dict[str, Any], text: str) -> None:
    function["name"] = function.get("name") or piece.get("name")
    value = piece.get(text)
    if isinstance(value, (dict, list)):
        function[text] = value  # against the format, but some servers send it
        return
    if not isinstance(function.get(text), Pieces):
        function[text] = Pieces()
    if isinstance(value, str):
        function[text].append(value)


def _without_indexes(choice: dict[str, Any]) -> dict[str, Any]:
    """Remove the indexes of calls, which only streams have."""
    calls = choice["message"].get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            call.pop("index", None)
    return choice


def _join(value: Any) -> Any:
    if isinstance(value, Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: _join(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_join(entry) for entry in value]
    return value
