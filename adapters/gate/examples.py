"""A few replies side by side, so that a person sees what the figures mean. Chosen by rule, never by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from burnish.adapters.gate.check import Limits
from burnish.adapters.gate.evidence import Pair, SampledReply
from burnish.adapters.gate.soundness import FAULTS
from burnish.adapters.tool_calls import readable

ExampleKind = Literal["gain", "typical", "loss", "fault"]

# With five examples, a verdict stays below 8 kB: the history is read often.
MAX_PROMPT_CHARACTERS = 200
MAX_REPLY_CHARACTERS = 500
MAX_FAULTS = 2


class Example(BaseModel):
    """One prompt and what both versions answered; long texts are cut and end in "…"."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ExampleKind
    why: str
    """Why it was chosen, in plain words."""
    prompt: str
    before: str
    after: str


def examples(
    pairs: Sequence[Pair], gains: Mapping[str, float], failed: Collection[str], limits: Limits
) -> tuple[Example, ...]:
    """Return the largest gain, a typical pair and the largest loss, and replies with the faults that were found.

    ``gains``: prompt → how much better the candidate's reply is; without any, three pairs are taken as they come.
    """
    faulty = [example for name in FAULTS if name in failed for example in _faulty(name, pairs, limits)]
    scored = sorted(
        (pair for pair in pairs if not gains or pair[0].prompt_id in gains),
        key=lambda pair: (gains.get(pair[0].prompt_id, 0.0), pair[0].prompt_id),
    )
    return (*_ranked(scored, gains), *faulty[:MAX_FAULTS])


def _ranked(scored: Sequence[Pair], gains: Mapping[str, float]) -> list[Example]:
    """Take the last, the middle and the first of pairs in ascending order."""
    places = dict.fromkeys((len(scored) - 1, len(scored) // 2, 0) if scored else ())
    found = []
    for place in places:
        pair = scored[place]
        gain = gains.get(pair[0].prompt_id, 0.0)
        if gain > 0 and place == len(scored) - 1:
            found.append(_example("gain", "the largest gain", pair))
        elif gain < 0 and place == 0:
            found.append(_example("loss", "the largest loss", pair))
        else:
            found.append(_example("typical", "a typical one", pair))
    return found


def _faulty(name: str, pairs: Sequence[Pair], limits: Limits) -> list[Example]:
    """Take the first pair whose fault is new."""
    words, fault = FAULTS[name]
    new = [pair for pair in pairs if fault(pair[0], limits) and not fault(pair[1], limits)]
    return [_example("fault", f"one of the {words}", pair) for pair in new[:1]]


def _example(kind: ExampleKind, why: str, pair: Pair) -> Example:
    new, old = pair
    return Example(
        kind=kind,
        why=why,
        prompt=_cut(new.prompt, MAX_PROMPT_CHARACTERS),
        before=_cut(_readable(old), MAX_REPLY_CHARACTERS),
        after=_cut(_readable(new), MAX_REPLY_CHARACTERS),
    )


def _readable(reply: SampledReply) -> str:
    """Return its text and its tool calls, a line each."""
    said = [reply.text] if reply.text else []
    error = [f"(the engine could make no answer of it: {reply.error})"] if reply.error else []
    return "\n".join([*said, *map(readable, reply.calls), *error])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
