"""The replies that a verdict shows, in a file beside its version: they quote prompts, so they can be erased."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from burnish.adapters import durable
from burnish.adapters.manifest import Event

_FILE = "v{:04d}.examples.json"


def keep(root: Path, version: int, examples: Sequence[dict[str, Any]]) -> None:
    """Write the examples of a version's last verdict. Raises OSError."""
    durable.replace(root / _FILE.format(version), json.dumps(list(examples), ensure_ascii=False))


def of(root: Path, version: int) -> list[dict[str, Any]]:
    """Return the examples of a version; none if they were erased."""
    try:
        found = json.loads((root / _FILE.format(version)).read_bytes())
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def prompts(root: Path) -> set[str]:
    """Return the ids of all prompts that examples quote; "" if an earlier release didn't note it."""
    return {each.get("prompt_id", "") for version in _versions(root) for each in of(root, version)}


def erase(root: Path, gone: Collection[str]) -> None:
    """Delete the examples of these prompts. Raises OSError."""
    for version in _versions(root):
        found = of(root, version)
        left = [each for each in found if each.get("prompt_id", "") not in gone]
        if len(left) < len(found):
            keep(root, version, left)


def _versions(root: Path) -> list[int]:
    return [int(path.name[1:].partition(".")[0]) for path in root.glob(_FILE.format(0).replace("0000", "*"))]


def moved_out(root: Path, events: Sequence[Event]) -> list[Event] | None:
    """Move the examples that earlier releases wrote into events to files; return the events without them.

    None: there were none. Raises OSError.
    """
    verdicts = [(each.version, each.details["verdict"]) for each in events if "verdict" in each.details]
    with_examples = [(version, verdict) for version, verdict in verdicts if "examples" in verdict]
    for version, verdict in with_examples:
        keep(root, version, verdict.pop("examples"))
    return list(events) if with_examples else None
