"""How long a request may be, and how many are answered at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """What an engine reads."""

    context: int
    """Tokens of one request, with its answer."""
    parallel: int
    """Requests that are decoded at a time; others wait."""
    trained: int
    """The longest context that the model was trained for, in tokens."""
