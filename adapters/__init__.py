"""Adapter versions: ``registry`` (what there is), ``swap``, ``route`` and ``hosts``.

Only the errors are imported here: every engine's child imports this package, and must not pay for the rest.
"""

from burnish.adapters.errors import (
    AdapterError,
    CorruptAdapter,
    EngineError,
    IllegalTransition,
    IncompatibleAdapter,
    ProbeFailed,
    UnknownVersion,
    UnreadableRewardModel,
)

__all__ = [
    "AdapterError",
    "CorruptAdapter",
    "EngineError",
    "IllegalTransition",
    "IncompatibleAdapter",
    "ProbeFailed",
    "UnknownVersion",
    "UnreadableRewardModel",
]
