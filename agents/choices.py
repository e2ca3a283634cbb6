"""Makes an engine answer with one of some texts, if it can. Which constraint an engine understands is found by trying.

| constraint | engines |
|---|---|
| ``grammar`` (GBNF) | llama.cpp, and the embedded engine |
| ``structured_outputs.choice`` | vLLM from 0.12 |
| ``guided_choice`` | vLLM before |
| ``regex`` | SGLang |
| ``response_format`` (JSON schema) | Ollama, LM Studio, cloud APIs: the answer is ``{"action": "…"}`` |

An engine ignores a field that it doesn't know, or refuses the request. So the first use asks something else, and looks
whether the answer is one of the texts.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from burnish.agents.errors import Refused

Ask = Callable[[str, Mapping[str, Any]], str]
"""Asks a question with further fields, and returns the reply. Raises Refused."""

QUESTION = "What is the capital of France?"
TRIAL = ("qx", "zv")
"""Nobody answers the question with one of these of their own accord."""


class ReplyConstraint(NamedTuple):
    name: str
    fields: Callable[[Sequence[str]], dict[str, Any]]


def gbnf(texts: Sequence[str]) -> str:
    """Return the grammar of llama.cpp for exactly one of the texts."""
    # Its literals have the escapes of JSON that are used here: \", \\, \n, \t.
    return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def schema(texts: Sequence[str]) -> dict[str, Any]:
    """Return a response format for an object whose action is one of the texts."""
    shape = {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": list(texts)}},
        "required": ["action"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": shape}}


CONSTRAINTS = (
    ReplyConstraint("grammar", lambda texts: {"grammar": gbnf(texts)}),
    ReplyConstraint("structured_outputs", lambda texts: {"structured_outputs": {"choice": list(texts)}}),
    ReplyConstraint("guided_choice", lambda texts: {"guided_choice": list(texts)}),
    ReplyConstraint("regex", lambda texts: {"regex": f"({'|'.join(map(re.escape, texts))})"}),
    ReplyConstraint("response_format", lambda texts: {"response_format": schema(texts)}),
)
NONE = "the engine takes no grammar: invalid replies are counted, and cost a penalty"


class Choices:
    """Remembers which constraint the engine of one address takes. Threads may share it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._constraint: ReplyConstraint | None = None
        self._tried = False

    def fields(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return the fields of a request whose reply must be one of the texts; none if the engine can't do it."""
        constraint = self._found()
        return constraint.fields(texts) if constraint and texts else {}

    @property
    def words(self) -> str:
        constraint = self._found()
        return f"the engine answers with valid actions only, by {constraint.name}" if constraint else NONE

    def _found(self) -> ReplyConstraint | None:
        with self._lock:
            if not self._tried:
                self._constraint = next(
                    (constraint for constraint in CONSTRAINTS if self._works(constraint)), None
                )
                self._tried = True
            return self._constraint

    def _works(self, constraint: ReplyConstraint) -> bool:
        try:
            reply = self._ask(QUESTION, constraint.fields(TRIAL))
        except Refused:
            return False
        with suppress(ValueError, LookupError, TypeError):
            reply = json.loads(reply)["action"]
        return reply.strip() in TRIAL
