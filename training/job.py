"""The job directory: all that training reads and writes, and the only thing the proxy knows of it.

::

    job.json        JobSpec                      in
    samples.jsonl   one Sample a line            in
    episodes.jsonl  one Episode a line           in, when an agent's rewards teach instead of feedback
    teacher.jsonl   one TeacherReply a line      in, when comments teach: replies sampled from the engine
    rollouts.jsonl  one PolicyReply a line       in, for "evaluate": replies sampled from the engine
    metrics.jsonl   one dict a step              out, appended live
    prompts.json    PromptsCompared              out of "train", before it learns
    checkpoint/     see training.checkpoint      while "train" runs, and after it was killed
    adapter/        PEFT layout, safetensors     out of "train"
    result.json     TrainResult                  out of "train", written last and atomically
    evaluation.json Evaluation                   out of "evaluate", written last and atomically
    proof.json      Proof                        out of "prove", for a version that has no proof
    error.json      {"error", "message"}         out, when a step failed for a reason we know

``python -m burnish.training train DIR`` and ``… evaluate DIR`` work on it. Paths inside are absolute or
relative to the directory, so the same job runs in a child process or on another machine.
Importable without torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from burnish.adapters.manifest import Probe
from burnish.config.hyperparameters import (
    FrozenRecord,
    Hyperparameters,
    LossName,
    ModelSize,
    Objective,
)
from burnish.gate.evidence import CommentFit, HeldOutReply
from burnish.gate.replies import left_in_text
from burnish.system import durable
from burnish.training.errors import JobError

__all__ = [
    "CONTINUED",
    "SYSTEM_MERGED",
    "Episode",
    "EpisodeStep",
    "Evaluation",
    "Hyperparameters",
    "JobDirectory",
    "JobSpec",
    "LossName",
    "ModelSize",
    "Objective",
    "PolicyReply",
    "PromptRead",
    "PromptsCompared",
    "Proof",
    "Quantize",
    "Related",
    "Sample",
    "TeacherReply",
    "TrainResult",
]

CONTINUED = "continue_final_message"
"""The argument of a chat template that says that the last message is the beginning of the reply."""
SYSTEM_MERGED = "system_merged"
"""The argument that says that the engine puts a system message, if the template has none, before the next message."""

Quantize = Literal["none", "8bit", "4bit"]
_Model = TypeVar("_Model", bound=BaseModel)


class JobSpec(FrozenRecord):
    """``job.json``."""

    run_id: str
    objective: Objective = "mis_po"
    base_model: str
    """Name of the base model, e.g. "smollm2"."""
    base_weights: str
    """Path of a GGUF file or of a Hugging Face model directory."""
    base_digest: str
    """"sha256:<hex>" of the GGUF (or of the directory's weights)."""
    weights_cache: str
    """Directory where dequantised weights are kept between runs."""
    size: ModelSize | None = None
    """Of the base model; None when its files do not say."""
    parent_adapter: str | None = None
    """PEFT directory whose weights training starts from; None = a fresh LoRA."""
    parent_version: int = 0
    """The version that training starts from; 0 = the base model."""
    incumbent_adapter: str | None = None
    """Compared with the outcome if it isn't the parent: the live version while a run starts from another one."""
    incumbent_is_base: bool = False
    """The base model is compared with the outcome, though training starts from an adapter."""
    task: str | None = None
    """The task whose rollouts teach; None: feedback teaches."""
    behaviour_adapters: dict[int, str] = Field(default_factory=dict)
    """Version → PEFT directory, for every version that generated a sample. 0 (base model) needs none."""
    hyperparameters: Hyperparameters = Hyperparameters()
    notes: tuple[str, ...] = ()
    """Settings that differ from the user's, with the reason, in words."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """How many rated answers are not among the samples, by reason."""
    seed: int = 0
    threads: int = 1
    device: str = "auto"
    """"auto", "cpu", "cuda", "cuda:N", "mps" or "shared"; see training.device."""
    quantize: Quantize = "none"
    """Format of the base weights during training; other than "none" on CUDA only."""


class PromptRead(FrozenRecord):
    """What an engine told of the prompt of an answer."""

    format: str
    """In which it was asked. What one counts more in all prompts of a format is no other prompt."""
    tokens: int | None = None
    """As it counted them; None: it didn't tell."""
    ids: tuple[int, ...] = ()
    """Empty: not captured."""
    messages: tuple[dict[str, Any], ...] = ()
    """With the instructions that burnish added; empty: it added none."""


class PromptsCompared(FrozenRecord):
    """``prompts.json``: how many prompts are those that the engine read; see ``training.compared``."""

    same: int
    different: int
    """Not taught."""
    unchecked: int
    """Taught, though the engine didn't tell what it read."""
    offsets: dict[str, int] = Field(default_factory=dict)
    """Tokens that it counts more than there are, by format."""


class EpisodeStep(FrozenRecord):
    """One completion of an agent."""

    completion_id: str
    messages: tuple[dict[str, Any], ...]
    """As of a Sample, and so are the next ones."""
    tools: tuple[dict[str, Any], ...] = ()
    template: dict[str, Any] = Field(default_factory=dict)
    reply: dict[str, Any]
    finished: bool
    behaviour_version: int | None
    reward: float = Field(default=0.0, allow_inf_nan=False)
    """Given for this step."""
    read: PromptRead | None = None
    prompt_ids: tuple[int, ...] = ()
    """As the engine saw them; empty: not captured."""
    reply_ids: tuple[int, ...] = ()


class Episode(FrozenRecord):
    """One rollout that has ended. A line of ``episodes.jsonl``."""

    rollout: str
    group: str
    """Episodes of one group are compared."""
    reward: float = Field(allow_inf_nan=False)
    """Given for the episode as a whole."""
    steps: tuple[EpisodeStep, ...]


class Sample(FrozenRecord):
    """One rated completion. A line of ``samples.jsonl``."""

    completion_id: str
    """With ``/1`` for its second choice, and so on."""
    conversation_id: str
    feedback_ids: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]
    """The context as the engine's chat template got it, `/rl` exchanges cut out."""
    tools: tuple[dict[str, Any], ...] = ()
    template: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the chat template; see ``Renderer.prompt``."""
    reply: dict[str, Any]
    """The assistant message that was produced, calls as the model wrote them: {"role": "assistant", "content": …}."""
    finished: bool
    """True when the model ended the reply itself; False when it was cut by a token limit."""
    read: PromptRead | None = None
    """None: another model answered."""
    reward: float = Field(ge=-1, le=1, allow_inf_nan=False)
    weight: float = 1.0
    comment: str | None = None
    correction: str | None = None
    """The reply that was wanted instead."""
    worse: tuple[dict[str, Any], ...] = ()
    """Other replies to the same context, which this one was preferred over."""
    behaviour_version: int | None
    """Version that generated the reply; 0 = base model; None = some other model or prompt (off-policy)."""
    held_out: bool
    """True: never trained on, judged on by the gate. Whole conversations are held out."""
    replayed: bool = False
    """Already learnt by an ancestor, and repeated to be remembered."""

    def with_reply(self, reply: dict[str, Any] | str, **changes: Any) -> Sample:
        """Return it with another reply, which no version is known to have written."""
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
        return self.model_copy(
            update={"reply": message, "finished": True, "behaviour_version": None, **changes}
        )


class UnratedPrompt(FrozenRecord):
    """One of the log. A line of ``unrated.jsonl``."""

    completion_id: str
    messages: tuple[dict[str, Any], ...]
    """As of a Sample, and so are the next ones."""
    tools: tuple[dict[str, Any], ...] = ()
    template: dict[str, Any] = Field(default_factory=dict)


class PolicyReply(FrozenRecord):
    """A reply that the engine sampled for the gate. A line of ``rollouts.jsonl``."""

    policy: Literal["candidate", "incumbent"]
    version: int | None = None
    """The version that the engine answered with; 0: the base model."""
    prompt_id: str
    """Same id = same prompt, so candidate and incumbent can be paired."""
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    template: dict[str, Any] = Field(default_factory=dict)
    """As of a Sample."""
    reply: str
    """Its text; next to tool calls there often is none."""
    tool_calls: tuple[dict[str, Any], ...] = ()
    """As the engine gave them, in OpenAI chat form."""
    thoughts: str | None = None
    """What the engine showed of them; None: nothing."""
    finished: bool
    """False when a token limit cut it."""
    error: str | None = None
    """The error of the engine when it could not parse the output of a model with tools."""

    @property
    def called(self) -> bool:
        """True for a tool call, also a failed one: there is no text to judge."""
        written_out = bool(self.tools) and left_in_text(self.reply)
        return bool(self.tool_calls or self.error) or written_out


class TeacherReply(FrozenRecord):
    """A reply to a criticised question, with comments in its prompt. A line of ``teacher.jsonl``."""

    completion_id: str
    """Of the criticised sample."""
    number: int
    """Of its prompts; see ``training.comments``."""
    comments: tuple[str, ...]
    """Those in the prompt."""
    reply: dict[str, Any]
    """As of a Sample."""
    finished: bool


class TrainResult(FrozenRecord):
    """``result.json``."""

    run_id: str
    samples: int
    good: int
    bad: int
    ratings: int = 0
    """Given to the run."""
    replayed: int = 0
    """Of these, already learnt."""
    steps: int
    left_out: dict[str, int] = Field(default_factory=dict)
    """Number of unused ratings by reason; ``JobSpec.left_out`` included."""
    unlearnt: dict[str, str] = Field(default_factory=dict)
    """The samples from which nothing was learnt, by ``completion_id``, and why."""
    rewards: str | None = None
    """Where the rewards of a policy gradient came from, in words."""
    notes: tuple[str, ...] = ()
    """As of a JobSpec: what the trainer had to do otherwise."""
    episodes: int = 0
    """Of an agent, given to the run."""
    reward: float | None = None
    """Their mean; None without episodes."""
    stopped_early: str | None
    """Why training stopped before its last step, if it did."""
    metrics: dict[str, float]
    """Last values: loss, kl_per_token, clip_share, grad_norm, …"""
    seconds: float
    cpu_seconds: float
    """Of all its threads."""
    peak_rss_bytes: int
    proof: tuple[Probe, ...] = ()
    """See ``training.proof``."""


class Related(FrozenRecord):
    """How much a sampled reply has to do with its own question, by the base model.

    log π_ref(y | its prompt) − mean of log π_ref(y | other prompts), per token (nats). Scored only for replies
    that have no word of their question.
    """

    policy: Literal["candidate", "incumbent"]
    prompt_id: str
    pmi: float


class Evaluation(FrozenRecord):
    """``evaluation.json``: figures that need the model; the gate judges them."""

    run_id: str
    held_out: tuple[HeldOutReply, ...]
    words: tuple[CommentFit, ...] = ()
    """Empty without comments."""
    related: tuple[Related, ...] = ()
    kl_per_token: float | None
    """Candidate's own rollouts, KL(candidate ‖ base model) per token, nats: mean of log π_c − log π_ref.
    None: there are none that could be scored."""
    general_loss: float
    """Mean negative log-likelihood per token of a fixed neutral text under the candidate."""
    general_loss_reference: float
    weight_change: float
    """‖ΔW‖ / ‖W‖ (Frobenius) of the matrices that the candidate changes."""
    seconds: float
    peak_rss_bytes: int


class Proof(FrozenRecord):
    """``proof.json``, out of "prove"."""

    proof: tuple[Probe, ...]


class JobDirectory:
    """Typed access to one job directory. Reading a file raises JobError if it is missing or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.adapter = path / "adapter"
        self.metrics = path / "metrics.jsonl"
        self.rollouts = path / "rollouts.jsonl"
        self.teacher = path / "teacher.jsonl"
        self._unrated = path / "unrated.jsonl"
        self.phases = path / "phases.jsonl"
        """See ``training.phases``."""
        self.prompts = path / "prompts.json"
        self.checkpoint = path / "checkpoint"
        """The progress of an unfinished run; removed at the end."""

    @property
    def is_trained(self) -> bool:
        return (self.path / "result.json").exists()

    def inputs(self) -> str:
        """Return a digest of all that decides what training does; two runs of equal inputs come to the same.

        Raises JobError.
        """
        # The others say what isn't learnt, and why.
        spec = self.spec().model_dump_json(exclude={"run_id", "left_out", "notes"})
        episodes = "".join(episode.model_dump_json() for episode in self.episodes())
        return hashlib.sha256(f"{spec}\n{_text(self.path / 'samples.jsonl')}{episodes}".encode()).hexdigest()

    def write_job(self, spec: JobSpec, samples: Iterable[Sample], episodes: Sequence[Episode] = ()) -> None:
        """Create the directory (0700) with its inputs; job.json last, so that a torn job has none."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_lines(self.path / "samples.jsonl", samples)
        if episodes:
            write_lines(self.path / "episodes.jsonl", episodes)
        durable.replace(self.path / "job.json", spec.model_dump_json(indent=1))

    def write_unrated(self, prompts: Iterable[UnratedPrompt]) -> None:
        """Keep unrated prompts, unless the job has some: a run that goes on may have learnt from those."""
        if not self._unrated.exists():
            write_lines(self._unrated, prompts)

    def write_replies(self, replies: list[PolicyReply]) -> None:
        write_lines(self.rollouts, replies)

    def spec(self) -> JobSpec:
        return read_record(self.path / "job.json", JobSpec)

    def samples(self) -> list[Sample]:
        return read_lines(self.path / "samples.jsonl", Sample)

    def episodes(self) -> list[Episode]:
        path = self.path / "episodes.jsonl"
        return read_lines(path, Episode) if path.exists() else []

    def unrated(self) -> list[UnratedPrompt]:
        return read_lines(self._unrated, UnratedPrompt) if self._unrated.exists() else []

    def teacher_replies(self) -> list[TeacherReply]:
        return read_lines(self.teacher, TeacherReply) if self.teacher.exists() else []

    def replies(self) -> list[PolicyReply]:
        return read_lines(self.rollouts, PolicyReply)

    def result(self) -> TrainResult:
        return read_record(self.path / "result.json", TrainResult)

    def evaluation(self) -> Evaluation:
        return read_record(self.path / "evaluation.json", Evaluation)

    def proof(self) -> Proof:
        return read_record(self.path / "proof.json", Proof)

    def finish(self, record: TrainResult | Evaluation | Proof) -> None:
        """Write the output file that says: this step is complete."""
        name = {TrainResult: "result.json", Evaluation: "evaluation.json", Proof: "proof.json"}[type(record)]
        durable.replace(self.path / name, record.model_dump_json(indent=1))


def latest_prompts(jobs: Path) -> PromptsCompared | None:
    """Return how the latest run found its prompts; None if no run is known that compared some."""
    for path in sorted(jobs.glob("run_*/prompts.json"), reverse=True):
        with suppress(JobError):
            return read_record(path, PromptsCompared)
    return None


def write_lines(path: Path, records: Iterable[FrozenRecord]) -> None:
    with durable.replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(record.model_dump_json() + "\n" for record in records)


def read_record(path: Path, model: type[_Model]) -> _Model:
    """Read a file as JSON. Raises JobError."""
    return _parsed(path, model, [_text(path)])[0]


def read_lines(path: Path, model: type[_Model]) -> list[_Model]:
    """Read a file of a record a line. Raises JobError."""
    # Not splitlines: it would also split at the line separators that Unicode allows inside a text.
    return _parsed(path, model, filter(None, _text(path).removesuffix("\n").split("\n")))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"cannot read {path}: {error}") from error


def _parsed(path: Path, model: type[_Model], texts: Iterable[str]) -> list[_Model]:
    try:
        return [model.model_validate_json(text) for text in texts]
    except ValidationError as error:
        raise JobError(f"{path} is damaged: {error}") from error
