"""Messages → token ids, through the model's own chat template, as the engine renders them.

One deliberate difference from the engine: a special token *written* in a message (``<|im_end|>``) stays text here.
Knows nothing of ratings.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

from burnish.gate.replies import text_of
from burnish.training.errors import JobError, MissingDependency
from burnish.training.job import CONTINUED, SYSTEM_MERGED
from burnish.training.teachable import EMPTY
from burnish.training.thoughts import UNWRITTEN, Thoughts, Unthinkable

# Private-use characters around the index of a written special token, while the template is applied.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_PARKED = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
# Stands for the text of an answer, while the template is applied: templates trim texts, and drop some.
_ANSWER = "\ue0f2"
# Tokens of a prompt that hold the beginning of a thought, if there is one.
_TAIL = 16
_QUESTION = [{"role": "user", "content": "?"}]


NO_ARGUMENTS: Mapping[str, Any] = {}
DEVELOPER = "developer"
_PROBE = "in one word"
CHANGED = "the chat template changes the prompt when the reply follows"


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
    """Never empty: the first reply token needs something to follow. The model's thoughts are part of it: not taught."""
    reply: tuple[int, ...]
    """What the model generated behind its thoughts, the end-of-turn token included iff it finished."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All token ids, (T,)."""
        return self.prompt + self.reply

    def within(self, max_tokens: int) -> Rendered:
        """Return it unchanged. Raises Unrenderable if it has more tokens."""
        check_length(len(self.ids), max_tokens)
        return self


def check_length(tokens: int, max_tokens: int) -> None:
    """Raise Unrenderable if it is too long: without its beginning, a prompt isn't the one that the engine read."""
    if tokens > max_tokens:
        # Two digits, so that an agent's prompts are counted together.
        about = round(tokens, 2 - len(str(tokens)))
        why = f"about {about:,} tokens, more than train.advanced.max_tokens ({max_tokens:,})"
        raise Unrenderable(why, f"{tokens:,}")


def _listed_ends(directory: Path, eos: int | None) -> frozenset[int]:
    """Return the tokens at which an engine that serves this directory stops."""
    ends = [eos]
    for name in ("generation_config.json", "config.json"):
        with suppress(OSError, ValueError):
            listed = json.loads((directory / name).read_text(encoding="utf-8")).get("eos_token_id")
            ends += listed if isinstance(listed, list) else [listed]
    return frozenset(end for end in ends if isinstance(end, int))


def flattened(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message as templates want it: content a string, arguments of tool calls an object."""
    content = message.get("content")
    flat = {**message, "content": text_of(message) if isinstance(content, list) else content or ""}
    if calls := message.get("tool_calls"):
        flat["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
    return flat


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put a system message at the beginning before the next one, as llama.cpp does."""
    if not messages or messages[0].get("role") != "system":
        return messages
    system, *rest = messages
    return [{**each, "content": f"{system['content']}\n{each['content']}"} for each in rest[:1]] + rest[1:]


def _begun(
    messages: Sequence[Mapping[str, Any]], template: Mapping[str, Any]
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Return the messages before the reply, and the beginning of the reply if the request held it."""
    if not (template.get(CONTINUED) and messages and messages[-1].get("role") == "assistant"):
        return messages, ""
    return messages[:-1], text_of(messages[-1])


def _with_parsed_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    # An object already, or what the model wrote is no JSON: then the template gets it as it is.
    with suppress(TypeError, ValueError):
        function["arguments"] = json.loads(function.get("arguments") or "{}")
    return {**call, "function": function}


class Turn(NamedTuple):
    """A reply as the template writes it behind a prompt."""

    context: str
    """The thoughts, and what else stands before the answer."""
    answer: list[int]
    end: int | None
    """The token by which the model ended it; None: not known."""


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
        self._thoughts = Thoughts(str(self._tokenizer.chat_template))
        self._listed_ends = _listed_ends(directory, self._tokenizer.eos_token_id)

    @property
    def pad_id(self) -> int:
        """Fills up batches; never attended to."""
        return int(self._tokenizer.pad_token_id or self._tokenizer.eos_token_id)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The tokens at which the engine stops, and the one that the template writes behind an answer."""
        with suppress(Unrenderable):
            end = self._turn(_QUESTION, (), NO_ARGUMENTS, {"content": "", "reasoning_content": ""}).end
            return self._listed_ends | ({end} if end is not None else set())
        return self._listed_ends

    @property
    def begin_ids(self) -> list[int]:
        """The ids by which the tokenizer begins every text."""
        ids: list[int] = self._tokenizer("").input_ids
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Return what ids say, special tokens left out."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def piece(self, context: Sequence[int], token: int) -> str:
        """Return what a token adds to the text of a context, special tokens included; "" if that isn't a text."""
        begin, whole = (self._tokenizer.decode(ids) for ids in (context[-1:], [*context[-1:], token]))
        text: str = whole[len(begin) :]
        return "" if "\ufffd" in text else text

    def written(self, ids: Sequence[int]) -> str | None:
        """Return the text that becomes these ids, without ``begin_ids``; None if no text does."""
        text: str = self._tokenizer.decode(ids[len(self.begin_ids) :])
        return text if self._tokenizer(text).input_ids == list(ids) else None

    def conversation(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        reply: Mapping[str, Any],
        finished: bool,
        max_tokens: int,
        *,
        template: Mapping[str, Any] = NO_ARGUMENTS,
    ) -> Rendered:
        """Render a context and the reply to it.

        ``template``: as of ``prompt``. If the context ends in the beginning of the reply, that isn't part of the reply.
        A reply with an empty ``reasoning_content`` was written without thoughts; one without it may hide them.
        Raises Unrenderable when the template refuses it, its thoughts can't be rendered, the reply is empty, or both
        are longer than ``max_tokens``.
        """
        prompt = self.prompt(messages, tools, template)
        turn = self._turn(messages, tools, template, reply)
        prompt += self._ids(turn.context)
        reply_ids = turn.answer + ([turn.end] if finished and turn.end is not None else [])
        if not reply_ids:
            raise Unrenderable(EMPTY)
        return Rendered(tuple(prompt), tuple(reply_ids)).within(max_tokens)

    def sampled(self, prompt: Sequence[int], reply: Sequence[int]) -> Rendered:
        """Return ids as an engine gave them; the thoughts become part of the prompt. Raises Unrenderable."""
        opened = self._thoughts.opened_by(self._tokenizer.decode(prompt[-_TAIL:]))
        try:
            thoughts = self._thoughts.length_in(self._tokenizer.decode(reply), opened)
        except Unthinkable as error:
            raise Unrenderable(str(error)) from error
        places = range(len(reply) + 1)
        place = bisect_left(places, thoughts, key=lambda end: len(self._tokenizer.decode(reply[:end])))
        if place == len(reply):
            raise Unrenderable(EMPTY)
        return Rendered((*prompt, *reply[:place]), tuple(reply[place:]))

    def opening(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: Mapping[str, Any] = NO_ARGUMENTS,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Return the ids of a context up to where an answer without thoughts begins. Raises Unrenderable."""
        turn = self._turn(messages, tools, template, {"content": "", "reasoning_content": ""})
        return self.prompt(messages, tools, template) + self._ids(turn.context)

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        template: Mapping[str, Any] = NO_ARGUMENTS,
        *,
        as_engine: bool = False,
    ) -> list[int]:
        """Return the ids of a context up to where the model begins its reply, one BOS at most.

        ``template``: arguments of the chat template; with CONTINUED the last message is the beginning of the reply.
        ``as_engine``: written special tokens are special, as engines read them.
        """
        before, beginning = _begun(messages, template)
        text = self._text(before, tools, template, add_generation_prompt=True) + self._park(beginning)
        ids = self._ids(self._unparked(text) if as_engine else text)
        bos = self._tokenizer.bos_token_id
        if self._tokenizer("").input_ids[:1] == [bos] != ids[:1]:
            return [bos, *ids]
        return ids

    def plain(self, text: str) -> list[int]:
        """Return the ids of a text in which nothing is special."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        return ids

    def _turn(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        template: Mapping[str, Any],
        reply: Mapping[str, Any],
    ) -> Turn:
        messages, beginning = _begun(messages, template)
        if beginning:
            # llama.cpp repeats the beginning in an answer, but not in a stream.
            reply = {**reply, "content": text_of(reply).removeprefix(beginning)}
        prompt = self._text(messages, tools, template, add_generation_prompt=True)
        opened = not beginning and self._thoughts.opened_by(prompt)
        try:
            reply, thoughts = self._thoughts.parted(reply, opened)
        except Unthinkable as error:
            raise Unrenderable(str(error)) from error
        thought_first = opened or bool(thoughts and self._thoughts.possible)
        spoken = {"role": "assistant", "content": _ANSWER, "reasoning_content": thoughts}
        try:
            conversation = self._text([*messages, spoken], tools, template, add_generation_prompt=False)
            shared = commonprefix([prompt, conversation])  # noqa: RUF071, characters are meant
            context, mark, after = conversation[len(shared) :].partition(_ANSWER)
            # Some prompts end in an empty thought that the template leaves out of answers.
            if not mark or (shared != prompt and (context or thought_first)):
                raise Unrenderable(CHANGED)
        except Unrenderable as error:
            if thought_first:
                raise Unrenderable(UNWRITTEN, str(error)) from error
            if messages is _QUESTION:
                raise
            # No answer can stand behind this prompt, so its form is looked for behind another one.
            return self._turn(_QUESTION, tools, {**template, CONTINUED: False}, reply)._replace(context="")
        if self._thoughts.possible and self._park(thoughts) not in context:
            raise Unrenderable(UNWRITTEN)
        # White space is the model's own: often the first token of its answer begins with it.
        context = context if context.strip() else ""
        written = self._written_special.search(after)
        usual_end = written and written[0]
        if reply.get("tool_calls"):
            called = reply | {"content": beginning + text_of(reply), "reasoning_content": thoughts}
            conversation = self._text([*messages, called], tools, template, add_generation_prompt=False)
            if not conversation.startswith(shared):
                raise Unrenderable(CHANGED)
            before = context + self._park(beginning)
            turn = self._calls(conversation[len(shared) :], before, usual_end, reply)
            if beginning and not turn.context:
                raise Unrenderable(CHANGED)
        else:
            end = self._id(usual_end) if usual_end else self._next_turn(spoken, _ANSWER, _QUESTION[0])
            turn = Turn(context, self.plain(text_of(reply)), end)
        return turn._replace(context="") if beginning else turn

    def _calls(self, added: str, context: str, usual_end: str | None, reply: Mapping[str, Any]) -> Turn:
        """How calls are written is the template's own business: what it adds for them is the reply."""
        before = next((text for text in (context, context.rstrip()) if added.startswith(text)), "")
        if not before and self._thoughts.end_in(context):
            raise Unrenderable("the chat template writes thoughts differently before tool calls")
        written, end = added[len(before) :], None
        for token in filter(None, (usual_end, *map(self._token, self._listed_ends))):
            answer, found, remainder = written.rpartition(token)
            if found and (token == usual_end or not remainder.strip()):
                written, end = answer, self._id(token)
                break
        calls = [call.get("function") or {} for call in reply["tool_calls"]]
        # A template without tools passes over them in silence.
        if not all(str(function.get("name")) in written for function in calls):
            raise Unrenderable("the chat template does not write tool calls")
        if end is None:
            result = {"role": "tool", "tool_call_id": reply["tool_calls"][0].get("id"), "content": "?"}
            end = self._next_turn(reply, written, result)
        return Turn(before, self._ids(written), end)

    def _next_turn(
        self, message: Mapping[str, Any], written: str, following: Mapping[str, Any]
    ) -> int | None:
        """Return the token by which the next turn begins, if it is one of the engine's ends; else its only end."""
        with suppress(Unrenderable):
            conversation = self._text(
                [*_QUESTION, message, following], (), NO_ARGUMENTS, add_generation_prompt=False
            )
            first = self._written_special.match(conversation.partition(written)[2].lstrip())
            if first and self._id(first[0]) in self._listed_ends:
                return self._id(first[0])
        return next(iter(self._listed_ends)) if len(self._listed_ends) == 1 else None

    def _id(self, token: str) -> int:
        return int(self._tokenizer.convert_tokens_to_ids(token))

    def _token(self, number: int) -> str:
        return str(self._tokenizer.convert_ids_to_tokens(number))

    def _text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        template: Mapping[str, Any],
        *,
        add_generation_prompt: bool,
    ) -> str:
        from jinja2.exceptions import TemplateError

        try:
            known = [flattened(self._known(message)) for message in messages]
            if template.get(SYSTEM_MERGED) and not self._has_system:
                known = _merged(known)
            parked = [self._park(message) for message in known]
            arguments = {
                name: value for name, value in template.items() if name not in (CONTINUED, SYSTEM_MERGED)
            }
            text: str = self._tokenizer.apply_chat_template(
                parked,
                tools=[self._park(tool) for tool in tools] or None,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
                **arguments,
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise Unrenderable("the chat template refuses this conversation", str(error)) from error
        return text

    def _known(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message with a role that the template knows: engines take the developer for the system, too."""
        unknown = message.get("role") == DEVELOPER and DEVELOPER not in str(self._tokenizer.chat_template)
        return {**message, "role": "system"} if unknown else message

    @cached_property
    def _has_system(self) -> bool:
        """Whether the template writes a system message."""
        probe = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hi"}]
        with suppress(Unrenderable):
            return _PROBE in self._text(probe, (), {}, add_generation_prompt=True)
        return False

    def _unparked(self, text: str) -> str:
        return _PARKED.sub(lambda parked: self._special[int(parked[1])], text)

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
