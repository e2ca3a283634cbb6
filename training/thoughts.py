"""What a thinking model writes before its answer, by its chat template. It is context of the answer, never taught."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from burnish.gate.replies import text_of

# <think> and </think>, [THINK], <seed:think>.
_TAG = re.compile(r"[<\[]/?(?:\w+:)?(?:think|thought|reason)\w*[>\]]", re.IGNORECASE)
_MENTIONED = re.compile(r"thinking|thought|reasoning", re.IGNORECASE)
FIELDS = ("reasoning_content", "reasoning")
"""Where engines put a message's thoughts."""
HIDDEN = "the model thinks before it answers, and its thoughts aren't in the log"
UNFINISHED = "the answer stops in the midst of the model's thoughts"
UNWRITTEN = "the chat template leaves out what the model thought before this answer"


class Unthinkable(ValueError):
    """The thoughts before an answer aren't known."""


class Thoughts:
    """How a chat template writes them."""

    def __init__(self, template: str) -> None:
        names = sorted({tag.replace("/", "", 1) for tag in _TAG.findall(template)})
        opening = "|".join(map(re.escape, names)) or "(?!)"
        closing = "|".join(re.escape(f"{name[0]}/{name[1:]}") for name in names) or "(?!)"
        self.possible = bool(names or _MENTIONED.search(template))
        """The model may think. Otherwise thoughts are those of another model, which this one never sees."""
        self._opened = re.compile(rf"(?:{opening})\s*\Z")
        self._begun = re.compile(rf"\s*(?:{opening})")
        self._whole = re.compile(rf"\s*(?:{opening})?(.*?)(?:{closing})\s*", re.DOTALL)

    def opened_by(self, prompt: str) -> bool:
        """Return whether a prompt ends inside a thought, which the model goes on with."""
        return bool(self._opened.search(prompt))

    def end_in(self, context: str) -> bool:
        return bool(self._whole.search(context))

    def length_in(self, text: str, opened: bool) -> int:
        """Return how many characters of an answer are thoughts. Raises Unthinkable if they aren't finished."""
        if not opened and not self._begun.match(text):
            return 0
        if whole := self._whole.match(text):
            return whole.end()
        raise Unthinkable(UNFINISHED)

    def parted(self, reply: Mapping[str, Any], opened: bool) -> tuple[dict[str, Any], str]:
        """Take the thoughts off a reply, also those in its text. ``opened``: the prompt ends inside of them.

        Raises Unthinkable.
        """
        answer = {"role": "assistant"} | {name: part for name, part in reply.items() if name not in FIELDS}
        known = [reply[name].strip() for name in FIELDS if isinstance(reply.get(name), str)]
        text = text_of(reply)
        begun = bool(self._begun.match(text))
        if (begun or opened) and not any(known):
            if thought := self._whole.match(text):
                return answer | {"content": text[thought.end() :]}, thought[1].strip()
            if begun or not known:
                raise Unthinkable(UNFINISHED if begun else HIDDEN)
        return answer, max(known, key=len, default="")
