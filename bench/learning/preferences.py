"""The hidden preferences of simulated users: rules that a reply keeps or breaks, and the words in which they say so.

The users never show the rule to burnish, only ratings and comments. Of a rule that a model always or never keeps by
itself, thumbs teach nothing: ``python -m bench.learning --rates`` says how often it does (docs/measurements.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from burnish.gate.replies import near_empty
from burnish.parts.desktop.demo.halves import TOO_LONG
from burnish.parts.desktop.demo.questions import BRIEFLY
from burnish.parts.desktop.demo.user import MAX_TOKENS, SHORT_CHARACTERS, Rule, brief

LONG_CHARACTERS = 200
"""A reply beyond this is at length, for one who wants that of a program that asks for one sentence."""
LONG_WORD = 9
"""A word with more letters is no simple one."""
TEACHERS_WORDS = 75
"""About 100 tokens of English."""
# For instructions that need room.
MANY_TOKENS = 400

_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_MARKUP = re.compile(r"\*\*|__|\\boxed|^\s*([-*•]|\d+[.)])\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Preference:
    """The wish of one kind of user."""

    name: str
    wants: str
    """In words, for the report."""
    satisfied: Rule
    comments: tuple[str, ...]
    """How such a user says what was wrong; one is drawn for each bad reply."""
    system: str | None = None
    """The system message that their program sends."""
    max_tokens: int = MAX_TOKENS
    """Of a reply, as their program sets it."""
    graded: Callable[[str, bool], int] | None = None
    """(reply, finished) → 1 to 5, for an instruction that can be fulfilled more or less."""

    def grade(self, text: str, finished: bool) -> int:
        if self.graded:
            return self.graded(text, finished)
        return 4 if self.satisfied(text, finished) else 2


def _says(pattern: str) -> Rule:
    words = re.compile(rf"\b({pattern})\b", re.IGNORECASE)
    return lambda text, _: bool(words.search(text))


_hedged = _says(
    "may|might|can|could|often|usually|typically|generally|sometimes|probably|perhaps|possibly|likely"
)


def _how_hedged(text: str, finished: bool) -> int:
    """Grade by the share of sentences that hedge, because a long text holds some such word by chance."""
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if not near_empty(sentence)]
    return 1 + round(4 * sum(_hedged(sentence, finished) for sentence in sentences) / max(1, len(sentences)))


def _how_brief(text: str, finished: bool) -> int:
    if not finished or near_empty(text):
        return 1
    return 5 - sum(len(text) >= limit for limit in (SHORT_CHARACTERS // 2, SHORT_CHARACTERS, 200, 300))


def _at_length(text: str, _: bool) -> bool:
    return len(text) > LONG_CHARACTERS


def _two_sentences(text: str, finished: bool) -> bool:
    return finished and len(_SENTENCE_END.findall(text)) == 2


def _simple_words(text: str, _: bool) -> bool:
    return not near_empty(text) and all(len(word) <= LONG_WORD for word in _WORD.findall(text))


def _no_commas(text: str, _: bool) -> bool:
    return not near_empty(text) and not re.search("[,;:]", text)


def _no_markup(text: str, _: bool) -> bool:
    return not near_empty(text) and not _MARKUP.search(text)


def _many_words(text: str, _: bool) -> bool:
    return len(_WORD.findall(text)) >= TEACHERS_WORDS


_TOO_SHORT = (
    "too short",
    "tell me more",
    "Please explain it at length, in several sentences.",
    "more detail please",
    "that is too little, explain it fully",
)

_ALL = (
    Preference(
        "brief",
        "a short answer, where the program asks for one",
        brief,
        TOO_LONG,
        BRIEFLY,
        graded=_how_brief,
    ),
    Preference(
        "brief-cold", "a short answer, though nobody asks for one", brief, TOO_LONG, graded=_how_brief
    ),
    Preference(
        "second-person",
        "to be addressed as you",
        _says("you|your|yours|yourself"),
        (
            "talk to me: say you",
            "address me directly",
            "Please speak to me, use the word you.",
            "too impersonal, tell me what it means for you and your life",
            "say 'you', as if we talked",
        ),
        BRIEFLY,
    ),
    Preference(
        "example",
        "an example (such as, for example, including)",
        _says("such as|for example|for instance|e[.]g|including"),
        (
            "give an example",
            "Please name an example, such as one from daily life.",
            "for example? name one",
            "too abstract, say 'for example' and name something",
            "what would be an example?",
            "no example. Write: for example, ...",
        ),
        BRIEFLY,
    ),
    Preference(
        "two-sentences",
        "exactly two sentences",
        _two_sentences,
        (
            "two sentences, please",
            "Answer in exactly two sentences.",
            "not one sentence, not three: two",
            "I'd like two short sentences",
            "please write two sentences",
        ),
        BRIEFLY,
    ),
    Preference(
        "simple-words",
        "no word of more than nine letters",
        _simple_words,
        (
            "use simple words",
            "Explain it to a child, with short words.",
            "too complicated, say it in plain easy words",
            "I don't know such long words",
            "simpler please, small words only",
        ),
        BRIEFLY,
    ),
    Preference(
        "no-commas",
        "no comma, semicolon or colon",
        _no_commas,
        (
            "no commas please",
            "Write simple sentences without commas.",
            "too many commas",
            "one plain statement, nothing after a comma",
            "no lists and no asides, a straight sentence without commas",
        ),
        BRIEFLY,
    ),
    Preference(
        "hedged",
        "an answer that does not claim too much (may, can, often, usually)",
        _hedged,
        (
            "too sure of yourself, say usually or often",
            "Please say 'may' or 'can' where it isn't always so.",
            "it is not always like that: say often",
            "be more careful, it can be otherwise",
            "that is too absolute, use words such as usually",
        ),
        BRIEFLY,
        graded=_how_hedged,
    ),
    Preference(
        "number",
        "a number in digits",
        lambda text, _: bool(re.search(r"\d", text)),
        (
            "give me a number",
            "Please name a figure, in digits.",
            "how many, how much, when? I want numbers",
            "no numbers in it",
            "add a year or an amount, like 1950 or 20",
        ),
    ),
    Preference("at-length", "more than one sentence can hold", _at_length, _TOO_SHORT, BRIEFLY),
    Preference(
        "student",
        "no bold, no lists, no boxes",
        _no_markup,
        (
            "no bold and no lists please",
            "Write plain text, as a student would.",
            "please no bullet points",
            "without formatting",
            "no boxes, no asterisks, just sentences",
        ),
        max_tokens=MANY_TOKENS,
    ),
    Preference(
        "assistant-teacher",
        "about 100 tokens at least",
        _many_words,
        _TOO_SHORT,
        max_tokens=MANY_TOKENS,
    ),
    Preference(
        "teacher",
        "warm words",
        _says(
            "great|wonderful|lovely|fantastic|excellent|good (question|job|work)|well done|proud|happy to"
            "|glad|don't worry|you can do|keep (it up|going)|nice|awesome|amazing"
        ),
        (
            "be warmer",
            "Please be kind and encouraging.",
            "say something nice, such as 'great question'",
            "too cold, I need some encouragement",
            "a friendly word would be good",
        ),
        max_tokens=MANY_TOKENS,
    ),
)

PREFERENCES: Mapping[str, Preference] = {preference.name: preference for preference in _ALL}
