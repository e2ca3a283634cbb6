"""A few replies side by side, which show a person what the figures mean. They are chosen by rule."""

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
    """Why it was chosen, for users."""
    prompt: str
    before: str
    after: str


def examples(
    pairs: Sequence[Pair], gains: Mapping[str, float], failed: Collection[str], limits: Limits
) -> tuple[Example, ...]:
    """Return the pairs with the largest gain, a typical one and the largest loss, and one for each fault found.

    ``gains``: prompt ID → how much better the candidate's reply is; if empty, the last, middle and first pair.
    """
    faulty = [example for name in FAULTS if name in failed for example in _faulty(name, pairs, limits)]
    scored = sorted(
        (pair for pair in pairs if not gains or pair[0].prompt_id in gains),
        key=lambda pair: (gains.get(pair[0].prompt_id, 0.0), pair[0].prompt_id),
    )
    return (*_ranked(scored, gains), *faulty[:MAX_FAULTS])


def _ranked(scored: Sequence[Pair], gains: Mapping[str, float]) -> list[Example]:
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
            found.append(_example("typical", "a typical pair", pair))
    return found


def _faulty(name: str, pairs: Sequence[Pair], limits: Limits) -> list[Example]:
    """Take the first pair in which only the candidate's reply has the fault."""
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
    text = [reply.text] if reply.text else []
    error = [f"(the engine couldn't read this as an answer: {reply.error})"] if reply.error else []
    return "\n".join([*text, *map(readable, reply.calls), *error])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
