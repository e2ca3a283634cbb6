"""burnish's own words: how its answers to commands read, and how a history is freed of them. Pure.

A client may drop a command but keep the answer, or join the answer with the model's. An answer has one of few exact
forms, by which it is recognised: no process remembers what it said. It is removed if it is a whole message or part of
the assistant, or the end of one. Such an end begins a line or follows without a space, and isn't introduced by a
colon; or it follows the very words that it quotes. So a text of the model that quotes or mentions an answer stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from burnish.proxy.messages import TEXT_PARTS

PREFIX = "burnish: "
"""The start of every answer of burnish's own."""
QUOTE_CHARACTERS = 60
UNDO_HINT = "/rl undo takes it back"
UNTAKEN = "The text below your rating was neither taken as a comment nor sent to the model. Send it again:"
SOME, REST = r"[^\n]{0,400}", r"[^\n]{0,4000}"
"""Parts of a line; limited, because a text may be long."""
ANSWER = re.compile(
    rf"""
    burnish:\ (?:
        (?: (?: rated\ (?:good|bad|[1-5]\ of\ 5) | saved\ the\ reply\ that\ you\ wanted | taken\ back ) {SOME}\ –
            | you\ have\ no\ rating\ to\ take\ back\ on )
        [ ] (?: “(?P<quoted>[^\n]{{0,{QUOTE_CHARACTERS + 1}}})” | a\ tool\ call | an\ empty\ answer
            | the\ answer\ cmpl_\w{{1,64}} )
        (?: \ \({re.escape(UNDO_HINT)}\) | \ or\ before\ it )?
        | (?: nothing\ was\ (?:rated|saved) | the\ command\ failed ):\ {REST} (?:\n\ \ cmpl_\w{{1,64}}){{0,9}}
        | /rl\ (?:status|train|promote|rollback|reset|on|off):\ {REST}
        | (?: (?:unknown\ command:|Only\ owners\ may\ use)\ /rl\ {REST} )?
            rate\ the\ last\ answer: (?:\n\ \ /rl\ {REST}){{1,19}}
        | …
    )
    (?: \n{re.escape(UNTAKEN)} (?: \n (?: \ \ [^\n]*+ )?+ )++ )?
    """,
    re.VERBOSE,
)
"""Every answer has one of these forms; the last one stands for an answer that a client only names."""
TRIES = 4
"""Places at which an answer may begin, from the end of a text: it may quote another."""
IN_A_ROW = 19
"""Answers that are removed from the end of one text."""
SEARCHED = 8000
"""Characters before an answer in which the words that it quotes are looked for."""
JOINTS = "\n.!?…。！？"
"""Characters right before an answer, besides letters, that show a joint: nobody writes on without a space."""
ASSISTANTS = ("assistant", "model")


def quote(words: str) -> str:
    """Return the beginning of a text, on one line."""
    line = one_line(words)
    return f"“{line[:QUOTE_CHARACTERS].rstrip()}{'…' if len(line) > QUOTE_CHARACTERS else ''}”"


def one_line(text: str) -> str:
    return " ".join(text.split())


def is_answer(text: str) -> bool:
    """True if a text is nothing but answers of burnish's own."""
    return PREFIX in text and not without_answers(text).strip()


def without_answers(text: str, before: str = "") -> str:
    """Return a text of the assistant without burnish's own answers at its end. ``before``: the text before it."""
    kept = end = whole = len(text.rstrip())
    for _ in range(IN_A_ROW):
        start = _last_answer(text, end)
        if start is None:
            break
        end = len(text[:start].rstrip())
        if _stands_apart(text, start, end, before):
            kept = end
    return text if kept == whole else text[:kept]


def _last_answer(text: str, end: int) -> int | None:
    """Return where the answer begins that a text ends with; None if there is none."""
    start = end
    for _ in range(TRIES):
        start = text.rfind(PREFIX, 0, start)
        if start < 0:
            return None
        if ANSWER.fullmatch(text, start, end):
            return start
    return None


def _stands_apart(text: str, start: int, end: int, before: str) -> bool:
    """True if an answer was joined to the text that ends at ``end``, and isn't a quotation in it."""
    said = before[-SEARCHED:] + text[max(0, end - SEARCHED) : end]
    neighbour = text[start - 1] if start else "\n"
    if (neighbour in JOINTS or neighbour.isalnum()) and not said.rstrip().endswith((":", "：")):
        return True
    found = ANSWER.match(text, start)
    quoted = found["quoted"] if found else None
    if not quoted:
        return False
    said = one_line(said)
    return quoted[:-1] in said if quoted.endswith("…") else said.endswith(quoted)


def without_own_words(items: Sequence[Any]) -> list[Any] | None:
    """Return a history, in any format, without answers beside the assistant's words; None if there are none.

    An answer that is alone behind a user's message stays: see ``exchanges``.
    """
    kept: list[Any] = []
    for item, following in zip_longest(items, items[1:]):
        freed = item
        if _is_assistants(item) and _may_hold_answer(item):
            behind = bool(kept) and _is_assistants(kept[-1])
            freed = _freed(item, behind=behind, before=_is_assistants(following))
        if freed is not None:
            kept.append(freed)
    same = len(kept) == len(items) and all(one is other for one, other in zip(kept, items, strict=True))
    return None if same else kept


def _is_assistants(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") in ASSISTANTS


def _may_hold_answer(item: dict[str, Any]) -> bool:
    content = item.get("content")
    return not isinstance(content, str) or PREFIX in content or "parts" in item


def _freed(item: dict[str, Any], *, behind: bool, before: bool) -> dict[str, Any] | None:
    """Return a message of the assistant without burnish's own answers; None if nothing else is in it.

    ``behind``, ``before``: whether its neighbours are the assistant's, too. They may be pieces of one message.
    """
    name = "parts" if isinstance(item.get("parts"), list) else "content"
    content = item.get(name)
    parts = content if isinstance(content, list) else [content]
    texts = [_text(part) for part in parts]
    if not any(text and PREFIX in text for text in texts):
        return item
    last = None if before else max(n for n, text in enumerate(texts) if text)
    left: list[str | None] = []
    said = ""
    for n, text in enumerate(texts):
        words = text
        # An end counts at the end of the message only.
        if text and (n == last or text.lstrip().startswith(PREFIX)):
            words = without_answers(text, said)
        left.append(words if not words or n == last else text)
        said += left[-1] or ""
    if left == texts:
        return item
    kept = [
        part if words == text else _worded(part, words)
        for part, text, words in zip(parts, texts, left, strict=True)
        if words != "" or words == text
    ]
    if not any(words is None or words.strip() for words in left) and not item.get("tool_calls"):
        return None if behind else item
    return {**item, name: kept if isinstance(content, list) else "".join(kept)}


def _worded(part: Any, text: str | None) -> Any:
    return {**part, "text": text} if isinstance(part, dict) else text


def _text(part: Any) -> str | None:
    """Return what the assistant says in a part; None of any other kind, such as a thought."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else None
    text, kind = part.get("text"), part.get("type", "text")
    said = isinstance(text, str) and isinstance(kind, str) and kind in TEXT_PARTS and not part.get("thought")
    return text if said else None
