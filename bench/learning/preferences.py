"""What simulated users secretly want: rules that a reply keeps or breaks, and the words in which they say so.

The users never show the rule to burnish, only ratings and comments. Of a rule that a model always or never keeps by
itself, thumbs teach nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from burnish.adapters.replies import near_empty
from burnish.bench.questions import BRIEFLY

SHORT_CHARACTERS = 130
"""As in the demo: a finished answer below this is brief."""

_YOU = re.compile(r"\b(you|your|yours|yourself)\b", re.IGNORECASE)

Rule = Callable[[str, bool], bool]
"""(reply, finished) → whether the user is satisfied."""


@dataclass(frozen=True, slots=True)
class Preference:
    """What one kind of user wants."""

    name: str
    wants: str
    """In words, for the report."""
    satisfied: Rule
    comments: tuple[str, ...]
    """How such a user says what was wrong; one is drawn for each bad reply."""
    system: str | None = None
    """The system message that their program sends."""


def _brief(text: str, finished: bool) -> bool:
    return finished and len(text) < SHORT_CHARACTERS and not near_empty(text)


def _second_person(text: str, _: bool) -> bool:
    return bool(_YOU.search(text))


_TOO_LONG = (
    "too long",
    "Too long. One short sentence, please.",
    "shorter please",
    "way too long, answer in one short sentence",
    "please be brief",
    "I only want one short sentence",
    "keep it short",
    "too wordy, get to the point",
    "just the answer in a few words",
    "shorter!",
)

PREFERENCES: Mapping[str, Preference] = {
    preference.name: preference
    for preference in (
        Preference("brief", "a short answer, where the program asks for one", _brief, _TOO_LONG, BRIEFLY),
        Preference("brief-cold", "a short answer, though nobody asks for one", _brief, _TOO_LONG),
        Preference(
            "second-person",
            "to be addressed",
            _second_person,
            (
                "talk to me: say you",
                "address me directly",
                "Please speak to me, use the word you.",
                "too impersonal, tell me what it means for you and your life",
                "say 'you', as if we talked",
            ),
            BRIEFLY,
        ),
    )
}
