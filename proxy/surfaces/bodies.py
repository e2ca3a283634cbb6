"""What the bodies of all answers have in common: streamed or whole, and where an error stands in them."""

from __future__ import annotations

import json
from typing import Any

from burnish.proxy.surfaces.lenient import as_text


def is_streamed(body: bytes, content_type: str) -> bool:
    """Whether a body is a stream of events, whatever its content type says."""
    start = body[:16].lstrip()
    said = "event-stream" in content_type.lower() and not start.startswith(b"{")
    return said or start.startswith((b"data:", b"event:"))


def error_in(body: dict[str, Any]) -> str | None:
    """Return what a body says went wrong, in the upstream's own words."""
    error = body.get("error")
    if not error:
        if "choices" in body:
            return None
        error = body.get("detail")  # FastAPI's form, as some engines send it
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    if not error:
        return None
    said = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    return as_text(said.encode("utf-8", "replace"))
