"""Adapter versions: what there is, whether it may go live, and the engines that serve it."""

from burnish.adapters.errors import (
    AdapterError,
    CorruptAdapter,
    EngineError,
    IllegalTransition,
    IncompatibleAdapter,
    ProbeFailed,
    UnknownVersion,
)
from burnish.adapters.gate import Evidence, Limits, Verdict, judge
from burnish.adapters.hosts.base import AdapterHost, Endpoint
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Event, Manifest
from burnish.adapters.registry import Registry

__all__ = [
    "BASE_VERSION",
    "AdapterError",
    "AdapterHost",
    "AdapterVersion",
    "CorruptAdapter",
    "Endpoint",
    "EngineError",
    "Event",
    "Evidence",
    "IllegalTransition",
    "IncompatibleAdapter",
    "Limits",
    "Manifest",
    "ProbeFailed",
    "Registry",
    "UnknownVersion",
    "Verdict",
    "judge",
]
