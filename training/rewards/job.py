"""The job of ``burnish reward train``: what a reward model is learnt from. Importable without torch.

::

    reward_job.json   RewardJob                 in
    rated.jsonl       one RatingLine a line     in
    model/            see gate.rewards.files   out
    error.json        {"error", "message"}      out, when it failed for a reason we know

``python -m burnish.training reward DIR`` works on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from burnish.config.hyperparameters import FrozenRecord
from burnish.gate.rewards import MIN_OF_A_CLASS, MIN_RATED, MOST_RATED, RatedReply
from burnish.gate.rewards.files import LearntFrom
from burnish.gate.rewards.preference_model import splits
from burnish.system import durable
from burnish.training.errors import NotTrainable
from burnish.training.job import read_lines, read_record, write_lines

JOB, LINES, MODEL = "reward_job.json", "rated.jsonl", "model"
Places = NDArray[np.intp]
THUMB = 1.0
OLDER = f"older than the latest {MOST_RATED}"
"""Why replies aren't learnt from."""


class RatingLine(FrozenRecord):
    """A reply that something was said of. A line of ``rated.jsonl``."""

    conversation_id: str
    prompt: str
    """What the person asked."""
    text: str
    """Its text; calls of tools are written out."""
    finished: bool
    """False when a token limit cut it."""
    reward: float | None
    """In [-1, 1]; None: it was only compared."""
    weight: float = 1.0
    worse: tuple[int, ...] = ()
    """Numbers of lines, from 0: replies to the same prompt that it was preferred over."""


class RewardJob(FrozenRecord):
    """``reward_job.json``."""

    base_weights: str | None = None
    """Path of a GGUF file or of a Hugging Face model directory; None: only forms that need no model are tried."""
    base_digest: str = ""
    """"sha256:<hex>" of it."""
    weights_cache: str = ""
    """Directory where dequantised weights are kept between runs."""
    why_no_base: str = ""
    """Why ``base_weights`` is None, in words."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """Feedback that isn't among the lines, by reason."""
    seed: int = 0
    threads: int = 1


def write_reward_job(path: Path, job: RewardJob, lines: list[RatingLine]) -> None:
    """Create the directory (0700) with its inputs. Raises OSError."""
    path.mkdir(mode=0o700, parents=True)
    write_lines(path / LINES, lines)
    durable.replace(path / JOB, job.model_dump_json(indent=1))


def read_reward_job(path: Path) -> tuple[RewardJob, list[RatingLine]]:
    return read_record(path / JOB, RewardJob), read_lines(path / LINES, RatingLine)


@dataclass(frozen=True, slots=True)
class Ratings:
    """Replies, what was said of each, and which was preferred over which."""

    lines: tuple[RatingLine, ...]
    replies: tuple[RatedReply, ...]
    """The same replies; one that was only compared has the reward +1 or −1."""
    pairs: tuple[tuple[int, int], ...]
    """(better, worse): places in ``replies``."""

    @property
    def good(self) -> NDArray[np.bool_]:
        """(N,)."""
        return np.array([reply.reward > 0 for reply in self.replies])

    @property
    def groups(self) -> list[str]:
        return [reply.conversation_id for reply in self.replies]

    def of(self, places: Places) -> Ratings:
        """Return a part of them. Pairs of which one reply isn't in it are dropped."""
        new = {int(old): place for place, old in enumerate(places)}
        return Ratings(
            tuple(self.lines[place] for place in places),
            tuple(self.replies[place] for place in places),
            tuple(
                (new[better], new[worse]) for better, worse in self.pairs if better in new and worse in new
            ),
        )

    def folds(self, seed: int) -> Iterator[tuple[Places, Places]]:
        """Yield (training, unseen) places of a cross-validation that leaves whole conversations out."""
        labels = np.where(self.good, 1.0, -1.0)
        for mask in splits(labels, self.groups, seed):
            yield np.flatnonzero(mask), np.flatnonzero(~mask)

    def learnt_from(self, left_out: dict[str, int]) -> LearntFrom:
        rewards = [line.reward for line in self.lines if line.reward]
        return LearntFrom(
            good=sum(reward == THUMB for reward in rewards),
            bad=sum(reward == -THUMB for reward in rewards),
            graded=sum(abs(reward) != THUMB for reward in rewards),
            pairs=len(self.pairs),
            conversations=len(set(self.groups)),
            left_out=left_out,
        )


def usable(lines: Sequence[RatingLine]) -> tuple[Ratings, dict[str, int]]:
    """Return the ratings that can be learnt from, and how many can't be, by reason. Raises NotTrainable."""
    compared = {place: -THUMB for line in lines for place in line.worse}
    compared |= {place: THUMB for place, line in enumerate(lines) if line.worse}
    rewards = [line.reward or compared.get(place, 0.0) for place, line in enumerate(lines)]
    places = [place for place, reward in enumerate(rewards) if reward and lines[place].weight]
    latest = places[-MOST_RATED:]
    left_out = {
        "neither good nor bad": len(lines) - len(places),
        OLDER: len(places) - len(latest),
    }
    replies = [
        RatedReply(line.conversation_id, line.prompt, line.text, line.finished, reward, line.weight)
        for line, reward in zip(lines, rewards, strict=True)
    ]
    pairs = [(place, worse) for place, line in enumerate(lines) for worse in line.worse]
    ratings = Ratings(tuple(lines), tuple(replies), tuple(pairs)).of(np.array(latest, dtype=np.intp))
    _check_enough(int(ratings.good.sum()), len(latest))
    return ratings, {reason: count for reason, count in left_out.items() if count}


def _check_enough(good: int, count: int) -> None:
    bad = count - good
    if min(good, bad) >= MIN_OF_A_CLASS and count >= MIN_RATED:
        return
    kinds = {"good": good, "bad": bad}
    lacking = [name for name, number in kinds.items() if number < MIN_OF_A_CLASS]
    advice = (
        f"{MIN_OF_A_CLASS} {' and '.join(lacking)} ones are needed at least: rate some answers {' and '.join(lacking)}"
        if lacking
        else f"{MIN_RATED} are needed at least: rate {MIN_RATED - count} more"
    )
    raise NotTrainable(
        f"{good} good and {bad} bad replies can't teach a reward model (a preference counts as one of each): {advice}"
    )
