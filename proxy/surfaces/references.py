"""Ids of items that burnish writes in the Responses format, and messages that refer to answers by these ids.

By default the AI SDK sends the ids of earlier items instead of the items. Our ids hold the id of their completion, so
the log can find the answer without further state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from burnish.proxy.ids import ALPHABET, LENGTH

Message = dict[str, Any]

TYPE = "item_reference"
COMMAND_PREFIX = "rl_"
"""Prefix in the ids of our answers to commands, which have no completion in the log."""
NAME = re.compile(rf"[a-z]+_(?P<ours>{COMMAND_PREFIX})?(?P<token>[{ALPHABET}]{{{LENGTH}}})_[0-9]+")


def name_of(kind: str, token: str, number: int) -> str:
    """Return an item's id: prefix of its kind, completion id without its prefix, position."""
    return f"{kind}_{token}_{number}"


def completion_named(name: str) -> str | None:
    """Return the completion id in an item's id; None if it isn't ours or belongs to a command."""
    found = NAME.fullmatch(name)
    return f"cmpl_{found['token']}" if found and not found["ours"] else None


def refers_to_command(item: Mapping[str, Any]) -> bool:
    """Return whether an item refers to our answer to a command."""
    found = NAME.fullmatch(str(item.get("id")))
    return item.get("type") == TYPE and found is not None and found["ours"] is not None


def references(message: Message) -> Iterator[str]:
    """Return the item ids that a message refers to."""
    items = message.get("items")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("type") == TYPE:
            yield str(item.get("id"))


def resolved(messages: Sequence[Message], replies: Mapping[str | None, Message]) -> list[Message]:
    """Replace references by the answers that they refer to. ``replies``: completion id → reply.

    A message that also refers to an unknown item stays unchanged.
    """
    found: list[Message] = []
    for message in messages:
        named = dict.fromkeys(map(completion_named, references(message)))
        known = [replies[name] for name in named if name in replies]
        found += known if named and len(known) == len(named) else [message]
    return found
