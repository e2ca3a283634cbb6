"""Replies that are kept in files beside their version: they quote prompts, so they can be erased.

``examples`` are the replies that a verdict shows, ``pairs`` those that people may judge without knowing which is which.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from burnish.system import durable

Kind = Literal["examples", "pairs"]


def keep(root: Path, version: int, examples: Sequence[dict[str, Any]], kind: Kind = "examples") -> None:
    """Write the replies of a version's last verdict. Raises OSError."""
    durable.replace(_file(root, version, kind), json.dumps(list(examples), ensure_ascii=False))


def of(root: Path, version: int, kind: Kind = "examples") -> list[dict[str, Any]]:
    """Return the replies of a version; none if they were erased."""
    try:
        replies = json.loads(_file(root, version, kind).read_bytes())
    except (OSError, ValueError):
        return []
    return replies if isinstance(replies, list) else []


def prompts(root: Path) -> set[str]:
    """Return the ids of all prompts that are quoted; "" if an earlier release didn't note it."""
    return {
        reply.get("prompt_id", "")
        for kind in get_args(Kind)
        for version in versions(root, kind)
        for reply in of(root, version, kind)
    }


def erase(root: Path, prompt_ids: Collection[str]) -> None:
    """Delete the replies to these prompts. Raises OSError."""
    for kind in get_args(Kind):
        for version in versions(root, kind):
            replies = of(root, version, kind)
            remaining_replies = [reply for reply in replies if reply.get("prompt_id", "") not in prompt_ids]
            if len(remaining_replies) < len(replies):
                keep(root, version, remaining_replies, kind)


def erase_all(root: Path, kind: Kind) -> None:
    """Delete the replies of all versions. Raises OSError."""
    for version in versions(root, kind):
        _file(root, version, kind).unlink(missing_ok=True)


def versions(root: Path, kind: Kind) -> list[int]:
    """Return the versions that have such a file, oldest first."""
    return sorted(int(path.name[1:].partition(".")[0]) for path in root.glob(f"v*.{kind}.json"))


def _file(root: Path, version: int, kind: Kind) -> Path:
    return root / f"v{version:04d}.{kind}.json"
