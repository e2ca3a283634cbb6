"""The replies that verdicts show, in files beside the versions: they quote prompts, so they can be erased."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from burnish.system import durable


def keep(root: Path, version: int, examples: Sequence[dict[str, Any]]) -> None:
    """Write the replies of a version's last verdict. Raises OSError."""
    durable.replace(_file(root, version), json.dumps(list(examples), ensure_ascii=False))


def of(root: Path, version: int) -> list[dict[str, Any]]:
    """Return the replies of a version; none if they were erased."""
    try:
        replies = json.loads(_file(root, version).read_bytes())
    except (OSError, ValueError):
        return []
    return replies if isinstance(replies, list) else []


def prompts(root: Path) -> set[str]:
    """Return the ids of all prompts that are quoted; "" if an earlier release didn't note it."""
    return {reply.get("prompt_id", "") for version in _versions(root) for reply in of(root, version)}


def erase(root: Path, prompt_ids: Collection[str]) -> None:
    """Delete the replies to these prompts. Raises OSError."""
    for version in _versions(root):
        replies = of(root, version)
        remaining_replies = [reply for reply in replies if reply.get("prompt_id", "") not in prompt_ids]
        if len(remaining_replies) < len(replies):
            keep(root, version, remaining_replies)


def _versions(root: Path) -> list[int]:
    return [int(path.name[1:].partition(".")[0]) for path in root.glob("v*.examples.json")]


def _file(root: Path, version: int) -> Path:
    return root / f"v{version:04d}.examples.json"
