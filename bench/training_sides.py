"""One side of the training bench, in a process of its own: burnish's trainer or TRL's, over the same batches.

``python -m bench.training_sides burnish|trl sft|kto|dpo WEIGHTS`` prints what was measured as JSON. Both sides train
the same LoRA in the same number format on the same tokens, eight replies a step, in the same order. Loading, rendering,
tokenising and scoring by the reference come before the clock starts. The first step prepares kernels and isn't counted.

TRL keeps activations instead of recomputing them, has the reference computed beforehand, and logs and saves nothing. It
runs under autocast in bf16, which is its default and faster here than without. It pads a whole batch to its longest
sequence; burnish works in micro-batches of 256 tokens, which bounds the memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.training_batch import praised, preferred, rated
from burnish.training.job import Hyperparameters, JobDirectory, JobSpec, Sample
from burnish.training.loop import peak_rss_bytes

Objective = Literal["sft", "kto", "dpo"]
SAMPLES = {"sft": praised, "kto": rated, "dpo": preferred}
REPLIES_A_STEP = 8
LEARNING_RATE = 3e-4


@dataclass(frozen=True, slots=True)
class Taken:
    """The cost of some optimiser steps."""

    dtype: str
    """In which the frozen weights are."""
    steps: int
    tokens: int
    """Of prompts and replies, padding not counted."""
    reply_tokens: int
    seconds: float
    cpu_seconds: float
    """Of all threads."""
    peak_rss_bytes: int
    """Of the whole process, loading included."""


@dataclass
class Stopwatch:
    """Stands at the end of each step."""

    laps: list[tuple[float, float]] = field(default_factory=list)
    """(wall clock, CPU time), in seconds."""

    def lap(self) -> None:
        """Note that a step has ended."""
        self.laps.append((time.perf_counter(), time.process_time()))

    def taken(self, dtype: str, sizes: Sequence[tuple[int, int]]) -> Taken:
        """Return what all steps but the first took; ``sizes``: (tokens, reply tokens) of each step."""
        assert len(sizes) == len(self.laps), f"{len(self.laps)} steps were made, not {len(sizes)}"
        (first, first_cpu), (last, last_cpu) = self.laps[0], self.laps[-1]
        return Taken(
            dtype=dtype,
            steps=len(sizes) - 1,
            tokens=sum(tokens for tokens, _ in sizes[1:]),
            reply_tokens=sum(replies for _, replies in sizes[1:]),
            seconds=last - first,
            cpu_seconds=last_cpu - first_cpu,
            peak_rss_bytes=peak_rss_bytes(),
        )


def burnish(objective: Objective, weights: Path, samples: Sequence[Sample], epochs: int) -> Taken:
    """Train with burnish's own backend on the CPU."""
    from burnish.training.backends.torch_peft import TorchPeftBackend
    from burnish.training.lessons import lessons

    spec = JobSpec(
        run_id="run_bench",
        objective=objective,
        base_model="small",
        base_weights=str(weights.absolute()),
        base_digest="",
        weights_cache="",
        hyperparameters=Hyperparameters(
            learning_rate=LEARNING_RATE, label_noise=0
        ),  # the same batch as theirs
    )
    backend = TorchPeftBackend(weights, None, spec.hyperparameters, spec.seed, device="cpu")
    learnt = lessons(JobDirectory(Path()), spec, samples, backend)
    batches = _batches(learnt, REPLIES_A_STEP // len(learnt[0].replies)) * epochs
    watch = Stopwatch()
    for batch in batches:
        backend.step(batch, spec.hyperparameters, 0.0)
        watch.lap()
    replies = [[reply.tokens for lesson in batch for reply in lesson.replies] for batch in batches]
    sizes = [(sum(len(r.ids) for r in batch), sum(len(r.reply) for r in batch)) for batch in replies]
    return watch.taken(str(backend.dtype).removeprefix("torch."), sizes)


def trl(objective: Objective, weights: Path, samples: Sequence[Sample], epochs: int, dtype: str) -> Taken:
    """Train with TRL's trainer of that objective on the CPU."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    watch = Stopwatch()

    class Laps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            watch.lap()

    trainers = {
        "sft": (SFTTrainer, SFTConfig),
        "kto": (KTOTrainer, KTOConfig),
        "dpo": (DPOTrainer, DPOConfig),
    }
    trainer_class, config_class = trainers[objective]
    own: dict[str, Any] = (
        {"completion_only_loss": True} if objective == "sft" else {"precompute_ref_log_probs": True}
    )
    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=getattr(torch, dtype))
    default = Hyperparameters()
    rows = [_row(objective, sample, tokenizer) for sample in samples]
    size = REPLIES_A_STEP // (2 if objective == "dpo" else 1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(
            model=model,
            args=config_class(
                output_dir=folder,
                per_device_train_batch_size=size,
                num_train_epochs=epochs,
                learning_rate=LEARNING_RATE,
                lr_scheduler_type="constant",
                max_grad_norm=default.max_grad_norm,
                max_length=None,
                train_sampling_strategy="sequential",
                gradient_checkpointing=False,
                bf16=dtype == "bfloat16",
                use_cpu=True,
                report_to="none",
                logging_strategy="no",
                save_strategy="no",
                disable_tqdm=True,
                **own,
            ),
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows),
            peft_config=LoraConfig(
                task_type="CAUSAL_LM",
                r=default.rank,
                lora_alpha=default.alpha,
                lora_dropout=0.0,
                target_modules="all-linear",
            ),
            callbacks=[Laps()],
        )
        trainer.train()
    seen = _batches([_size(objective, row) for row in trainer.train_dataset], size) * epochs
    sizes = [(sum(t for t, _ in batch), sum(r for _, r in batch)) for batch in seen]
    return watch.taken(dtype, sizes)


def _row(objective: Objective, sample: Sample, tokenizer: Any) -> dict[str, Any]:
    """Return a sample as TRL takes it, as text: it adds the end of the turn itself."""
    prompt = tokenizer.apply_chat_template(list(sample.messages), add_generation_prompt=True, tokenize=False)
    said = sample.reply["content"]
    if objective == "dpo":
        (worse,) = sample.worse
        return {"prompt": prompt, "chosen": said, "rejected": worse["content"]}
    return {"prompt": prompt, "completion": said} | (
        {"label": sample.reward > 0} if objective == "kto" else {}
    )


def _size(objective: Objective, row: dict[str, Any]) -> tuple[int, int]:
    """Return (tokens, reply tokens) of a row that TRL has tokenised."""
    if objective == "sft":
        return len(row["input_ids"]), sum(label != -100 for label in row["labels"])
    replies = [row[name] for name in ("completion_ids", "chosen_ids", "rejected_ids") if name in row]
    count = sum(map(len, replies))
    return count + len(replies) * len(row["prompt_ids"]), count


def _batches(items: Sequence[Any], size: int) -> list[list[Any]]:
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("side", choices=("burnish", "trl"))
    parser.add_argument("objective", choices=tuple(SAMPLES))
    parser.add_argument("weights", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16", help="TRL's; burnish finds out which is faster")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # what the libraries think of each other
    samples = SAMPLES[given.objective]()
    if given.side == "burnish":
        taken = burnish(given.objective, given.weights, samples, given.epochs)
    else:
        taken = trl(given.objective, given.weights, samples, given.epochs, given.dtype)
    print(json.dumps(asdict(taken)))


if __name__ == "__main__":
    main()
