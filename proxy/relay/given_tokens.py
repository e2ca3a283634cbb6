"""How each kind of engine gives token ids and log-probabilities of a chat completion. Pure: no I/O.

A way says what to add to a request, takes the tokens out of the answer, and removes again whatever the client didn't
ask for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeGuard

from burnish.adapters.hosts.detect import Kind
from burnish.proxy.records import Tokens
from burnish.proxy.surfaces.base import wants_stream
from burnish.proxy.surfaces.ends import VERBOSE
from burnish.proxy.surfaces.lenient import Json, objects

CUT = "the answer didn't come to its end"


@dataclass
class Collected:
    """The tokens of one answer while it arrives."""

    prompt: list[int] = field(default_factory=list)
    reply: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    missing: str | None = CUT
    """As of ``Tokens``."""

    def record(self) -> Tokens:
        if self.missing is not None:
            return Tokens(missing=self.missing)
        return Tokens(tuple(self.prompt), tuple(self.reply), tuple(self.logprobs))

    def lacks(self, why: str) -> None:
        self.missing = why


class Way(ABC):
    """One kind of engine and one request, which asks for one answer."""

    renders: ClassVar[bool] = False
    """Whether the ids of the prompt must be asked for apart."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """``params``: the members of the client's request, if that is in chat's format."""
        self._asked = params
        self._asks_logprobs = bool(params.get("logprobs"))
        self.streams = wants_stream(params)
        options = params.get("stream_options")
        self.counts = isinstance(options, dict) and options.get("include_usage") is True
        """Whether the client's stream ends in an event with counts."""

    @abstractmethod
    def members(self) -> Json:
        """Return what to add to the request; it wins over the client's members of the same names."""

    @abstractmethod
    def take(self, answer: Json, collected: Collected) -> None:
        """Take the tokens of an answer, or of one event of it, and remove what the client didn't ask for."""

    def adds(self, event: Json) -> bool:
        """Check whether an event, from which tokens were taken, was only sent because tokens were asked for."""
        return False

    def _take_logprobs(self, answer: Json) -> list[tuple[int, float]]:
        logprobs = list(_logprobs(answer))
        if not self._asks_logprobs:
            for choice in objects(answer.get("choices")):
                choice.pop("logprobs", None)
        return logprobs


class LlamaCpp(Way):
    """llama.cpp's server. Its streams leave out tokens: of calls, thoughts, split characters, and the last one."""

    renders = True

    def members(self) -> Json:
        logprobs = {} if self._asks_logprobs else {"logprobs": True, "top_logprobs": 1}
        return {"stream": False, "verbose": True, "return_tokens": True, **logprobs}

    def take(self, answer: Json, collected: Collected) -> None:
        told = answer.get(VERBOSE)
        if not self._asked.get("verbose"):
            answer.pop(VERBOSE, None)
        logprobs = self._take_logprobs(answer)
        ids = told.get("tokens") if isinstance(told, dict) else None
        if not _are_ids(ids) or not ids:
            return collected.lacks("this llama.cpp doesn't tell the ids of what it generates: update it")
        collected.reply = ids
        collected.logprobs = aligned(ids, logprobs)
        collected.missing = None


class Vllm(Way):
    def members(self) -> Json:
        return {"return_token_ids": True} | ({} if self._asks_logprobs else {"logprobs": True})

    def take(self, answer: Json, collected: Collected) -> None:
        prompt = answer.get("prompt_token_ids")
        if _are_ids(prompt):
            collected.prompt = prompt
        for choice in objects(answer.get("choices")):
            ids = choice.get("token_ids")
            if _are_ids(ids):
                collected.reply += ids
                given = [each for _, each in _logprobs({"choices": [choice]})]
                known = given if len(given) == len(ids) else [math.nan] * len(ids)
                collected.logprobs += known
        if collected.prompt and collected.reply:
            collected.missing = None
        else:
            collected.lacks(
                "this vLLM gives no token ids: it must be 0.10.2 or later, and show its reasoning"
            )
        self._clean(answer)

    def _clean(self, answer: Json) -> None:
        """Leave null where vLLM itself has null if nothing was asked for."""
        shown = bool(self._asked.get("return_token_ids"))
        for holder in (answer, *objects(answer.get("choices"))):
            for name in ("prompt_token_ids", "token_ids"):
                if name in holder and not shown:
                    holder[name] = None
            if "logprobs" in holder and not self._asks_logprobs:
                holder["logprobs"] = None

    def adds(self, event: Json) -> bool:
        choices = objects(event.get("choices"))
        empty = all(each.get("delta") == {} and each.get("finish_reason") is None for each in choices)
        return bool(choices) and empty


class Mlx(Way):
    """mlx_lm.server: its streams have no ids, and none of its answers the prompt's."""

    def members(self) -> Json:
        return {"stream": False} | ({} if self._asks_logprobs else {"logprobs": True})

    def take(self, answer: Json, collected: Collected) -> None:
        logprobs, count = self._take_logprobs(answer), count_of(answer, "completion_tokens")
        if self._asks_logprobs and self._asked.get("top_logprobs") not in (None, -1, 0):
            return collected.lacks("MLX doesn't tell which token it chose if top_logprobs is asked for")
        if not logprobs or len(logprobs) != count:
            return collected.lacks("this mlx_lm.server gives no token ids: update it")
        collected.reply = [name for name, _ in logprobs]
        collected.logprobs = [logprob for _, logprob in logprobs]
        collected.missing = None


WAYS: dict[Kind, type[Way]] = {"llamacpp": LlamaCpp, "vllm": Vllm, "mlx": Mlx}


def aligned(ids: Sequence[int], given: Sequence[tuple[int, float]]) -> list[float]:
    """Return the log-probability of each id, if some ids have none and ``given`` has the others in order.

    A token that ends inside a character has none. Of equal neighbours it may be unclear which one has: then NaN.
    """
    first, last = _places(ids, given), _places(ids[::-1], given[::-1])
    logprobs = [math.nan] * len(ids)
    if first is not None and last is not None:
        backwards = [len(ids) - 1 - place for place in reversed(last)]
        for (_, logprob), place, other in zip(given, first, backwards, strict=True):
            if place == other:
                logprobs[place] = logprob
    return logprobs


def _places(ids: Sequence[int], given: Sequence[tuple[int, float]]) -> list[int] | None:
    """Return the earliest place of each given id; None if they aren't among the ids in this order."""
    places: list[int] = []
    at = 0
    for name, _ in given:
        while at < len(ids) and ids[at] != name:
            at += 1
        if at == len(ids):
            return None
        places.append(at)
        at += 1
    return places


def as_events(answer: Json, *, usage: bool) -> Iterator[Json]:
    """Return an unstreamed answer of chat as the events of a stream; ``usage``: whether the client wants that, too.

    What the answer says beside the message comes with the last event, errors and stop reasons too.
    """
    others = {name: each for name, each in answer.items() if name not in ("choices", "usage", "object")}
    head: Json = {
        name: others.pop(name) for name in ("id", "created", "model", "system_fingerprint") if name in others
    }
    head["object"] = "chat.completion.chunk"
    choices = objects(answer.get("choices"))
    for choice in choices:
        message = choice.get("message")
        deltas = list(_deltas(message if isinstance(message, dict) else {}))
        for number, delta in enumerate(deltas):
            piece = {"index": choice.get("index", 0), "delta": delta, "finish_reason": None}
            if number == len(deltas) - 1 and "logprobs" in choice:
                piece["logprobs"] = choice["logprobs"]
            yield {**head, "choices": [piece]}
        rest = {name: member for name, member in choice.items() if name not in ("message", "logprobs")}
        end = {"index": 0, "finish_reason": None, **rest, "delta": {}}
        yield {**head, "choices": [end], **({} if usage else others)}
    if usage:
        yield {**head, "choices": [], "usage": answer.get("usage"), **others}
    elif others and not choices:
        yield {**head, "choices": [], **others}


def _deltas(message: Json) -> Iterator[Json]:
    yield {"role": message.get("role", "assistant"), "content": None}
    for name, value in message.items():
        if name == "tool_calls":
            for index, call in enumerate(objects(value)):
                yield {"tool_calls": [{"index": index, **call}]}
        elif name != "role" and value not in (None, ""):
            yield {name: value}


def _logprobs(answer: Json) -> Iterator[tuple[int, float]]:
    """Return id (-1: not told) and log-probability of each token that an answer names."""
    for choice in objects(answer.get("choices")):
        told = choice.get("logprobs")
        for each in objects(told.get("content") if isinstance(told, dict) else None):
            logprob = each.get("logprob")
            if isinstance(logprob, int | float):
                yield each.get("id", -1), float(logprob)


def _are_ids(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 2**32 for each in value)


def count_of(answer: Json, name: str) -> int | None:
    """Return a count of an answer's usage."""
    usage = answer.get("usage")
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int else None
