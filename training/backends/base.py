"""The interface of a training framework: score replies, make a step, save the adapter. Importable without one."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from burnish.training.backends.heads import HEAD_SHARE, HeadOf, Ids, no_head, woven_tokens
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters, LossName
from burnish.training.phases import Watch
from burnish.training.rendering import Rendered, Renderer

Policy = Path | Literal["bare", "trained"]
"""A source of probabilities: an adapter in PEFT layout, the base model, or the adapter under training."""

MAX_GRAD_NORM = 1.0
"""Gradients are clipped to it."""

GRADIENT_BYTES = 2**29
"""Gradients in memory at once: those of 100 replies by the small model, in 16 bits."""

LIKELIEST = 32
"""Tokens kept of a teacher at each place: about 85 kB for a reply of 96 tokens."""

ATTENTION = "attention"
"""In ``Hyperparameters.targets``: the linear layers of the attention, whatever they are called."""
# As transformers calls it.
_ATTENTION = re.compile(r"\.(self_attn|attn|attention|linear_attn)\.")

Logps = tuple[float, ...]
"""Log-probability of each reply token, nats, (R,)."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A policy's next-token probabilities along a reply: its likeliest tokens, and all others as one group."""

    ids: tuple[tuple[int, ...], ...]
    """(R, K)"""
    probabilities: tuple[tuple[float, ...], ...]
    """(R, K + 1): of these tokens, and of all others together."""


@dataclass(frozen=True, slots=True)
class LessonReply:
    """A reply ready to learn from: all of it is constant during a run."""

    tokens: Rendered
    pull: float
    """How strongly each of its tokens pulls, and in which direction."""
    weight: float
    behaviour_logps: Logps
    reference_logps: Logps
    teacher: Distribution | None = None
    """For "distil": learnt in place of the tokens themselves."""
    spares_end: bool = False
    """The last token is the end of the turn, and a bad rating isn't about it."""

    @property
    def good(self) -> bool:
        """True: the step makes it likelier."""
        return self.pull > 0

    @property
    def advantages(self) -> Logps:
        """A bad reply keeps its end: a model that unlearns ends goes on until the length limit."""
        pulls = (self.pull,) * len(self.tokens.reply)
        return (*pulls[:-1], 0.0) if self.spares_end and not self.good else pulls


@dataclass(frozen=True, slots=True)
class Lesson:
    """Replies that are learnt together, and the formula."""

    loss: LossName
    replies: tuple[LessonReply, ...]
    """One; for "dpo" two to the same context, the preferred one first; some anchors hold two."""
    rehearsed: bool = False
    """An unrated answer of the base model that the run preserves. No metric counts it."""
    reward: float | None = None
    """Of a policy gradient, before its baseline: only metrics look at it."""

    @property
    def good(self) -> bool:
        """True when the step makes its first reply likelier."""
        return self.replies[0].good


@dataclass(frozen=True, slots=True)
class Sampled:
    ids: tuple[int, ...]
    """The end-of-turn token included iff it finished."""
    logps: Logps
    """Of its tokens by the policy that drew it, at temperature 1."""
    finished: bool


class Tries(Protocol):
    """Sampled replies by the places of their prompts, kept while a run draws them."""

    def drawn(self) -> dict[int, Sampled]: ...

    def keep(self, drawn: dict[int, Sampled]) -> None: ...


class _Unkept:
    def drawn(self) -> dict[int, Sampled]:
        return {}

    def keep(self, drawn: dict[int, Sampled]) -> None:
        pass


UNKEPT: Tries = _Unkept()


def directions(replies: int, rank: int, outputs: int) -> int:
    """Return how many of ``rank`` directions of each gradient fit into ``GRADIENT_BYTES``; at least one.

    ``outputs`` is the sum of the widths of all matrices B.
    """
    return max(1, min(rank, GRADIENT_BYTES // (2 * replies * outputs)))


class TrainerBackend(Protocol):
    """One base model in memory, with one adapter under training on it."""

    renderer: Renderer
    watch: Watch[Any]
    """Counts what ``similarity`` and ``sample`` have done: the two that take long."""

    def logps(self, sequences: Sequence[Rendered], policy: Policy) -> list[Logps]:
        """Score replies without learning. Raises JobError when the adapter can't be loaded."""

    def distributions(self, sequences: Sequence[Rendered], policy: Policy) -> list[Distribution]:
        """Return a policy's next-token probabilities along the replies, ``LIKELIEST`` tokens each.

        Raises JobError as ``logps``.
        """

    def similarity(self, sequences: Sequence[Rendered]) -> NDArray[np.float64]:
        """Return the cosines between the gradients of the replies' mean log-probability, (N, N).

        By the policy under training, with respect to the B matrices of its adapter. Of many replies the gradients are
        projected at random so that they fit into ``GRADIENT_BYTES``.
        """

    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        policy: Policy,
        limits: Sequence[int],
        seed: int,
        tries: Tries = UNKEPT,
        *,
        greedy: bool = False,
    ) -> list[Sampled]:
        """Draw one reply to each prompt, of at most as many tokens as its limit, with ``TEMPERATURE`` and ``TOP_P``.

        Those among ``tries`` aren't drawn again. ``greedy``: the likeliest tokens.
        """

    def step(self, batch: Sequence[Lesson], config: Hyperparameters, point: float) -> dict[str, float]:
        """Make one optimiser step over the batch and return its metrics, ``loss`` and ``grad_norm`` among them.

        All other metrics cover rated replies only, not rehearsed ones. ``point`` is ``Batch.point``. Raises Diverged
        when loss or gradient is not finite; the adapter is then unchanged.
        """

    def weight_change(self, adapter: Path) -> float:
        """Return ‖ΔW‖ / ‖W‖ (Frobenius) over all matrices that an adapter changes. Raises JobError as ``logps``."""

    def checkpoint(self, path: Path) -> None:
        """Write a file from which ``restore`` goes on: adapter and optimiser."""

    def restore(self, path: Path) -> None:
        """Go on where another process, of the same job, wrote this. Raises JobError when it is damaged."""

    def save(self, directory: Path, base_model: str) -> None:
        """Write the adapter under training in PEFT layout (safetensors) into an existing directory.

        No path of this machine gets in.
        """


def target_names(linear: Collection[str], targets: Sequence[str]) -> list[str]:
    """Return the last parts of the names of the linear layers that the user wants an adapter on.

    ``linear``: all linear layers of the model, without the output head. Raises JobError if a target is missing.
    """
    available = {name.rpartition(".")[2] for name in linear}
    attention = {name.rpartition(".")[2] for name in linear if _ATTENTION.search(name)}
    names = set(targets) - {ATTENTION} | (attention if ATTENTION in targets else set())
    if missing := sorted(names - available) or [ATTENTION] * (ATTENTION in targets and not attention):
        raise JobError(
            f"the model has no linear layer called {', '.join(missing)}; it has: {', '.join(sorted(available))} "
            "(train.advanced.targets)"
        )
    return sorted(names)


def micro_batches(
    sequences: Sequence[Rendered], tokens: int, head: HeadOf = no_head, *, woven: bool = False
) -> list[list[int]]:
    """Group places of sequences with the same head that are computed at once, in at most ``tokens`` tokens.

    Similar lengths come together, because they are padded; if they are ``woven``, similar beginnings do, each counted
    once. A sequence that is longer than ``tokens`` is a group of its own.
    """
    return _groups([[sequence] for sequence in sequences], tokens, head, woven)


def lesson_batches(
    batch: Sequence[Lesson], tokens: int, head: HeadOf = no_head, *, woven: bool = False
) -> list[tuple[LossName, list[Lesson]]]:
    """Group lessons that are learnt by the same loss in the same way; the replies of a lesson stay together.

    Rehearsed lessons stay apart, because no metric counts them.
    """
    pieces: list[tuple[LossName, list[Lesson]]] = []
    for loss, rehearsed in dict.fromkeys((lesson.loss, lesson.rehearsed) for lesson in batch):
        members = [lesson for lesson in batch if (lesson.loss, lesson.rehearsed) == (loss, rehearsed)]
        replies = [[reply.tokens for reply in member.replies] for member in members]
        groups = _groups(replies, tokens, head, woven)
        pieces += [(loss, [members[place] for place in places]) for places in groups]
    return pieces


class _Row(NamedTuple):
    """Sequences that stay together."""

    head: Ids
    order: tuple[Any, ...]
    """Neighbours in a group have similar ones."""
    place: int
    sequences: Sequence[Rendered]


def _groups(rows: Sequence[Sequence[Rendered]], tokens: int, head: HeadOf, woven: bool) -> list[list[int]]:
    order = []
    for place, sequences in enumerate(rows):
        by = tuple(s.ids for s in sequences) if woven else (max(len(s.ids) for s in sequences),)
        order.append(_Row(head([s.prompt for s in sequences]), by, place, sequences))
    order.sort(key=lambda row: row[:2])
    groups: list[list[_Row]] = []
    size = _woven_size if woven else _padded_size
    for row in order:
        if groups and groups[-1][-1].head == row.head and size([*groups[-1], row]) <= tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [[row.place for row in group] for group in groups]


def _padded_size(group: Sequence[_Row]) -> int:
    """Return the tokens of all rows as long as the longest, those of the head by their share."""
    sequences = [s for row in group for s in row.sequences]
    head = len(group[0].head)
    return len(sequences) * (max(len(s.ids) for s in sequences) - head + round(HEAD_SHARE * head))


def _woven_size(group: Sequence[_Row]) -> int:
    head = len(group[0].head)
    sequences = [s.ids[head:] for row in group for s in row.sequences]
    return len(woven_tokens(sequences).ids) + len(sequences) * round(HEAD_SHARE * head)
