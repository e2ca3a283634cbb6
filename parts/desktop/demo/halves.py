"""The two halves of the demo: what the user says, and what the program in between asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from burnish.parts.desktop.demo.questions import BRIEFLY

TOO_LONG = (
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
"""How a user who likes short answers says what was wrong; one is drawn for each answer that isn't short."""


class Name(StrEnum):
    COMMENTS = "comments"
    THUMBS = "thumbs"


@dataclass(frozen=True, slots=True)
class Half:
    """One way to teach the same wish."""

    name: Name
    count: int
    """Comments, or ratings if the user makes none."""
    comments: tuple[str, ...]
    """Drawn from for each bad answer; empty: the user only rates."""
    system: str | None
    """The system message that the program sends with each request."""
    minutes: int
    """Roughly, for one seed on two idle cores, tests before and after included."""

    @property
    def feedback(self) -> str:
        return (
            f'{self.count} comments such as "{self.comments[0]}"' if self.comments else f"{self.count} thumbs"
        )

    @property
    def program(self) -> str:
        """The system message of the program, in words."""
        return f'system message "{self.system}"' if self.system else "no system message"

    @property
    def title(self) -> str:
        return f"{self.feedback}; {self.program}"


HALVES: Mapping[Name, Half] = {
    half.name: half
    for half in (
        Half(Name.COMMENTS, 16, TOO_LONG, None, minutes=8),
        Half(Name.THUMBS, 40, (), BRIEFLY, minutes=8),
    )
}
