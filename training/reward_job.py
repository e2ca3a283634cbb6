"""The job of ``burnish reward train``: what a reward model is learnt from. Importable without torch.

::

    reward_job.json   RewardJob                 in
    rated.jsonl       one RatingLine a line     in
    model/            see gate.preference       out
    error.json        {"error", "message"}      out, when it failed for a reason we know

``python -m burnish.training reward DIR`` works on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish.gate.preference import MOST_RATED
from burnish.system import durable
from burnish.training.errors import JobError

JOB, LINES, MODEL = "reward_job.json", "rated.jsonl", "model"
OLDER = f"older than the latest {MOST_RATED}"
"""Why replies aren't learnt from."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RatingLine(_Record):
    """A reply that something was said of. A line of ``rated.jsonl``."""

    conversation_id: str
    prompt: str
    """What the person asked."""
    messages: tuple[dict[str, Any], ...] = ()
    """The context, in OpenAI chat form."""
    text: str
    """Its text; calls of tools are written out."""
    finished: bool
    """False when a token limit cut it."""
    reward: float | None
    """In [-1, 1]; None: it was only compared."""
    weight: float = 1.0
    worse: tuple[int, ...] = ()
    """Numbers of lines, from 0: replies to the same prompt that it was preferred over."""


class RewardJob(_Record):
    """``reward_job.json``."""

    base_weights: str | None = None
    """Path of a GGUF file or of a Hugging Face model directory; None: only forms that need no model are tried."""
    base_digest: str = ""
    """"sha256:<hex>" of it."""
    weights_cache: str = ""
    """Directory where dequantised weights are kept between runs."""
    why_no_base: str = ""
    """Why ``base_weights`` is None, in words."""
    left_out: dict[str, int] = {}
    """Feedback that isn't among the lines, by reason."""
    seed: int = 0
    threads: int = 1


def write_reward_job(path: Path, job: RewardJob, lines: list[RatingLine]) -> None:
    """Create the directory (0700) with its inputs. Raises OSError."""
    path.mkdir(mode=0o700, parents=True)
    durable.replace(path / LINES, "".join(line.model_dump_json() + "\n" for line in lines))
    durable.replace(path / JOB, job.model_dump_json(indent=1))


def read_reward_job(path: Path) -> tuple[RewardJob, list[RatingLine]]:
    """Raises JobError."""
    try:
        job = RewardJob.model_validate_json((path / JOB).read_bytes())
        # Not splitlines: it would also split at the line separators that Unicode allows inside a text.
        lines = (path / LINES).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        return job, [RatingLine.model_validate_json(line) for line in lines if line]
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise JobError(f"the job of a reward model in {path} can't be read: {error}") from error
