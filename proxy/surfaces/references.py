"""Names of items that burnish writes in the Responses format, and messages in which a client calls answers by them.

By default the AI SDK names the items of earlier answers instead of sending them, for a server that keeps them. Names of
ours say which completion they belong to, so that nothing else has to be remembered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from burnish.proxy.ids import ALPHABET, LENGTH

Message = dict[str, Any]

TYPE = "item_reference"
OF_COMMANDS = "rl_"
"""Marks the items of our own answers to commands, which are of no completion in the log."""
NAME = re.compile(rf"[a-z]+_(?P<ours>{OF_COMMANDS})?(?P<token>[{ALPHABET}]{{{LENGTH}}})_[0-9]+")


def name_of(kind: str, token: str, number: int) -> str:
    """Return the name of an item: its kind's prefix, what stands behind the prefix of a completion's id, its place."""
    return f"{kind}_{token}_{number}"


def completion_named(name: str) -> str | None:
    """Return the id of the completion whose item a name means; None where it is none of ours, or of no completion."""
    found = NAME.fullmatch(name)
    return f"cmpl_{found['token']}" if found and not found["ours"] else None


def names_an_answer_to_a_command(item: Mapping[str, Any]) -> bool:
    """Whether an item is the name of an answer of ours to a command."""
    found = NAME.fullmatch(str(item.get("id")))
    return item.get("type") == TYPE and found is not None and found["ours"] is not None


def references(message: Message) -> Iterator[str]:
    """Return the names by which a message calls what was said before."""
    items = message.get("items")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("type") == TYPE:
            yield str(item.get("id"))


def resolved(messages: Sequence[Message], replies: Mapping[str | None, Message]) -> list[Message]:
    """Return messages with the answers that they name in the place of the names; ``replies``: by completion's id.

    A message that names something else, too, stays as it is.
    """
    told: list[Message] = []
    for message in messages:
        named = dict.fromkeys(map(completion_named, references(message)))
        known = [replies[name] for name in named if name in replies]
        told += known if named and len(known) == len(named) else [message]
    return told
