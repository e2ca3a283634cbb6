"""Wishes of simulated raters: rules on the text of a reply, so that the truth is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from bench.learning.preferences import PREFERENCES

Rule = Callable[[str, bool], bool]
"""(text, finished) → whether it pleases."""

# Those of the learning bench that the pool's short replies keep and break; "brief-cold" is the rule of "brief".
_OF_THE_BENCH = (
    "brief",
    "second-person",
    "example",
    "two-sentences",
    "simple-words",
    "no-commas",
    "hedged",
    "number",
    "at-length",
)


def _says(pattern: str) -> Rule:
    words = re.compile(pattern, re.IGNORECASE)
    return lambda text, _: bool(words.search(text))


WISHES: Mapping[str, Rule] = {
    **{name: PREFERENCES[name].satisfied for name in _OF_THE_BENCH},
    "usual": _says(r"\b(often|usually|typically|generally)\b"),
    "other-side": _says(r"\b(but|however|although|though|while)\b"),
    "contractions": _says(r"\w(n't|'s|'re|'ll|'ve)\b"),
    "defines": _says(r"^(a|an|the) [\w -]+ (is|are) an? "),
    "purpose": _says(r"\b(used|helps?|allows?|designed|for the purpose)\b"),
}
