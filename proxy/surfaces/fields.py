"""Fields that requests have in most formats, read with errors that name them."""

from __future__ import annotations

from typing import Any

from burnish.proxy.errors import InvalidRequest


def model(body: dict[str, Any]) -> str | None:
    """Return the model that a body asks for. Raises InvalidRequest."""
    named = body.get("model")
    if named is not None and not isinstance(named, str):
        raise InvalidRequest(f"model must be a string, not {type(named).__name__}", param="model")
    return named


def stream(body: dict[str, Any]) -> bool:
    """Return whether a body asks for a stream. Raises InvalidRequest."""
    wanted = body.get("stream")
    if wanted is not None and not isinstance(wanted, bool):
        raise InvalidRequest(f"stream must be true or false, not {type(wanted).__name__}", param="stream")
    return bool(wanted)


def around(prompt: Any, body: dict[str, Any]) -> Any:
    """Return the content of a prompt. One with a suffix is nobody's turn, but a file with a gap to be filled."""
    if not body.get("suffix"):
        return prompt
    before = prompt if isinstance(prompt, list) else [{"type": "text", "text": prompt}]
    return [*before, {"type": "suffix", "suffix": body["suffix"]}]
