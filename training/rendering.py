"""Messages → token ids, through the model's own chat template, as the engine renders them.

One deliberate difference from the engine: a special token *written* in a message (``<|im_end|>``) stays text here.
Knows nothing of ratings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.gate.replies import text_of
from burnish.training.errors import JobError, MissingDependency
from burnish.training.teachable import EMPTY

# Private-use characters around the index of a written special token, while the template is applied.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_PARKED = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class Unrenderable(ValueError):
    """The model's chat template cannot express this conversation, or it does not fit."""

    def __init__(self, why: str, detail: str = "") -> None:
        """``why`` is the same for all of its kind, so that they can be counted; ``detail`` is this one's own."""
        super().__init__(f"{why}: {detail}" if detail else why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Rendered:
    """One conversation as the model sees it."""

    prompt: tuple[int, ...]
    """Never empty: the first reply token needs something to follow."""
    reply: tuple[int, ...]
    """What the model generated, the end-of-turn token included iff it finished."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All token ids, (T,)."""
        return self.prompt + self.reply


def flattened(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message as templates want it: content a string, arguments of tool calls an object."""
    content = message.get("content")
    flat = {**message, "content": text_of(message) if isinstance(content, list) else content or ""}
    if calls := message.get("tool_calls"):
        flat["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
    return flat


def _with_parsed_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    # An object already, or what the model wrote is no JSON: then the template gets it as it is.
    with suppress(TypeError, ValueError):
        function["arguments"] = json.loads(function.get("arguments") or "{}")
    return {**call, "function": function}


class Renderer:
    """The tokenizer and chat template in a model's Hugging Face directory.

    Raises JobError when one of them is missing, MissingDependency when transformers is.
    """

    def __init__(self, directory: Path) -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingDependency.because(error) from error
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(
                directory, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise JobError(f"cannot load the tokenizer in {directory}: {error}") from error
        if not self._tokenizer.chat_template:
            raise JobError(f"the model in {directory} has no chat template: use an instruct model")
        special = [token.content for token in self._tokenizer.added_tokens_decoder.values() if token.special]
        self._special = sorted(special, key=len, reverse=True)
        self._written_special = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")

    @property
    def pad_id(self) -> int:
        """Fills up batches; never attended to."""
        return int(self._tokenizer.pad_token_id or self._tokenizer.eos_token_id)

    @property
    def end_id(self) -> int:
        """The token by which the model ends its turn."""
        return int(self._tokenizer.eos_token_id)

    def text(self, ids: Sequence[int]) -> str:
        """Return what ids say, special tokens left out."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def conversation(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        reply: Mapping[str, Any],
        finished: bool,
        max_tokens: int,
    ) -> Rendered:
        """Render a context and the reply to it; a context that is too long loses its oldest tokens.

        Raises Unrenderable when the template refuses it, or the reply is empty or longer than ``max_tokens``.
        """
        prompt = self.prompt(messages, tools)
        reply_ids = self._reply(messages, tools, reply)
        if finished:
            reply_ids.append(self.end_id)
        room = max_tokens - len(reply_ids)
        if not reply_ids:
            raise Unrenderable(EMPTY)
        if room < 1:
            raise Unrenderable(
                "the reply is too long", f"it has {len(reply_ids)} tokens, max_tokens is {max_tokens}"
            )
        return Rendered(tuple(prompt[-room:]), tuple(reply_ids))

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Return the ids of a context up to where the model begins its reply, one BOS at most."""
        ids = self._ids(self._text(messages, tools, add_generation_prompt=True))
        bos = self._tokenizer.bos_token_id
        if self._tokenizer("").input_ids[:1] == [bos] != ids[:1]:
            return [bos, *ids]
        return ids

    def plain(self, text: str) -> list[int]:
        """Return the ids of a text in which nothing is special."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        return ids

    def _reply(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        reply: Mapping[str, Any],
    ) -> list[int]:
        if not reply.get("tool_calls"):
            return self.plain(text_of(reply))
        # How calls are written is the template's own business: what it adds for them is the reply.
        prompt = self._text(messages, tools, add_generation_prompt=True)
        conversation = self._text([*messages, reply], tools, add_generation_prompt=False)
        if not conversation.startswith(prompt):
            raise Unrenderable("the chat template changes the prompt when a reply with tool calls follows")
        addition = conversation[len(prompt) :].rpartition(self._tokenizer.eos_token)[0]
        names = [str((call.get("function") or {}).get("name")) for call in reply["tool_calls"]]
        # A template without tools passes over them in silence.
        if not all(name in addition for name in names):
            raise Unrenderable("the chat template does not write tool calls")
        return self._ids(addition)

    def _text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
    ) -> str:
        from jinja2.exceptions import TemplateError

        try:
            parked = [self._park(flattened(message)) for message in messages]
            text: str = self._tokenizer.apply_chat_template(
                parked,
                tools=[self._park(tool) for tool in tools] or None,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise Unrenderable("the chat template refuses this conversation", str(error)) from error
        return text

    def _park(self, content: Any) -> Any:
        """Replace written special tokens in all strings by a mark that ``_ids`` turns into plain text."""
        if isinstance(content, str):
            clean = content.replace(_OPEN, "").replace(_CLOSE, "")
            return self._written_special.sub(lambda m: f"{_OPEN}{self._special.index(m[0])}{_CLOSE}", clean)
        if isinstance(content, Mapping):
            return {key: self._park(part) for key, part in content.items()}
        if isinstance(content, list | tuple):
            return [self._park(part) for part in content]
        return content

    def _ids(self, text: str) -> list[int]:
        """Tokenise a rendered template; parts at odd places of the split are indices of parked tokens."""
        ids: list[int] = []
        for place, part in enumerate(_PARKED.split(text)):
            if place % 2:
                ids += self.plain(self._special[int(part)])
            elif part:
                ids += self._tokenizer(part, add_special_tokens=False).input_ids
        return ids
