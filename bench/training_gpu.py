"""32 ratings on an 8B model on a GPU: seconds after loading, share of the card's peak, memory beside its estimate.

The model has the shape of Llama 3.1 8B and random weights, which train as fast as real ones. Nothing is downloaded:
it is made on the GPU, written to a temporary directory (16 GB; TMPDIR says where) and loaded as any model is. Its
tokenizer takes a word as a token. All epochs are made: random weights don't say when training has learnt enough. With
the extra ``quantize`` it trains on 8 and on 4 bits, too.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.training_batch import rated
from burnish.training import dataset
from burnish.training.device import needed_bytes, parameters, tokens_at_once
from burnish.training.job import Hyperparameters, JobDirectory, JobSpec, Quantize, Sample
from burnish.training.lessons import lessons
from burnish.training.loop import open_backend

LIMIT_S = 30.0
LLAMA_8B: Mapping[str, Any] = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
# Dense bf16 with accumulation in fp32, by the makers' data sheets; the first name that fits counts.
PEAK_FLOPS = (
    ("B200", 2250e12),
    ("H200 NVL", 835e12),
    ("H100 NVL", 835e12),
    ("H100 PCIe", 756e12),
    ("H200", 989e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40S", 362e12),
    ("RTX 4090", 165e12),
)
START, END, UNKNOWN = "<start>", "<end>", "<unknown>"
TEMPLATE = (
    f"{{% for m in messages %}}{START}{{{{ m.role }}}} {{{{ m.content }}}}{END}{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{START}assistant {{% endif %}}"
)


@dataclass(frozen=True, slots=True)
class Run:
    """The cost of training on some ratings."""

    load_s: float
    seconds: float
    """After loading: the log-probabilities of the reference, and all steps."""
    steps: int
    tokens: int
    """Trained on, of prompts and replies, padding not counted."""
    reply_tokens: int
    flops: float
    """That the mathematics needs; see ``needed_flops``."""
    peak_bytes: int
    """Of the GPU that torch had reserved at once, in loading and training; 0 without a GPU."""
    estimated_bytes: int
    """Before it starts, for as many tokens at once as it takes."""
    together: int
    """Tokens in one forward pass, at most."""


def random_model(directory: Path, sizes: Mapping[str, Any], device: str, samples: Sequence[Sample]) -> None:
    """Write a Llama of random weights in bf16, with a tokenizer that knows the words of the samples."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(**sizes, tie_word_embeddings=False)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(directory)
    _tokenizer(samples).save_pretrained(directory)


def _tokenizer(samples: Sequence[Sample]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Whitespace()
    texts = [message["content"] for sample in samples for message in (*sample.messages, sample.reply)]
    words = {word for text in (*texts, "system user assistant") for word, _ in split.pre_tokenize_str(text)}
    inner = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate([UNKNOWN, START, END, *sorted(words)])}, UNKNOWN)
    )
    inner.pre_tokenizer = split
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token=UNKNOWN,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=[START],
        chat_template=TEMPLATE,
    )


def measure(
    weights: Path,
    samples: Sequence[Sample],
    config: Hyperparameters,
    device: str,
    quantize: Quantize = "none",
) -> Run:
    """Load the model, and train on the samples for all epochs."""
    import torch

    spec = JobSpec(
        run_id="run_bench",
        base_model="random",
        base_weights=str(weights.absolute()),
        base_digest="",
        weights_cache="",
        hyperparameters=config,
        device=device,
        quantize=quantize,
    )
    together = config.micro_batch_tokens
    if torch.cuda.is_available():
        gc.collect()  # what is left of the run before
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        together = tokens_at_once(weights, config, quantize, torch.cuda.mem_get_info()[0])
    asked_for = config.model_copy(update={"micro_batch_tokens": together})
    job = JobDirectory(Path())
    started = time.perf_counter()
    backend = open_backend(job, spec, None)
    loaded = time.perf_counter()
    learnt = lessons(dataset.Run(job, spec, backend), samples)
    steps = 0
    for epoch in range(config.epochs):
        for batch in dataset.batches(learnt, config.batch_size, seed=epoch):
            backend.step(batch, config, 0.0)
            steps += 1
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = time.perf_counter() - loaded
    replies = [reply.tokens for lesson in learnt for reply in lesson.replies]
    tokens, reply_tokens = sum(len(r.ids) for r in replies), sum(len(r.reply) for r in replies)
    return Run(
        load_s=loaded - started,
        seconds=seconds,
        steps=steps,
        tokens=tokens * config.epochs,
        reply_tokens=reply_tokens * config.epochs,
        flops=needed_flops(weights, tokens, reply_tokens, config.epochs),
        peak_bytes=torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0,
        estimated_bytes=needed_bytes(weights, asked_for, quantize),
        together=together,
    )


def needed_flops(weights: Path, tokens: int, reply_tokens: int, epochs: int) -> float:
    """Return the floating-point operations of one scoring pass and ``epochs`` training passes.

    A frozen weight takes part in two operations a token forward and two backward (the gradient of its input), not in
    the two more that its own gradient would need: 4 N, not the 6 N of full training. The head sees reply tokens only,
    the embedding is looked up. Attention, the LoRA itself (.5 % of the weights) and whatever is computed twice to save
    memory are left out.
    """
    config = json.loads((weights / "config.json").read_bytes())
    head: int = config["vocab_size"] * config["hidden_size"]
    body = parameters(weights) - 2 * head
    forward = 2.0 * (body * tokens + head * reply_tokens)
    return forward + epochs * 2 * forward


def peak_flops(name: str) -> float | None:
    """Return a card's peak (bf16, dense), None where we don't know it."""
    return next((peak for part, peak in PEAK_FLOPS if part in name), None)


def report(run: Run, card: str) -> str:
    peak, rate = peak_flops(card), run.flops / run.seconds
    share = f"{rate / peak:.1%} of the peak ({peak / 1e12:.0f})" if peak else "peak unknown"
    return (
        f"{card}: {run.seconds:.1f} s after {run.load_s:.1f} s of loading (limit {LIMIT_S:.0f} s), {run.steps} steps, "
        f"{run.tokens / run.seconds:.0f} tokens/s, of which {run.reply_tokens / run.seconds:.0f} reply tokens/s; "
        f"{rate / 1e12:.1f} TFLOP/s (4 N a token), {share}; {run.peak_bytes / 1e9:.1f} GB of memory, "
        f"{run.estimated_bytes / 1e9:.1f} estimated, up to {run.together} tokens at once"
    )


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("torch sees no GPU here; without --gpu the bench runs on the CPU")
        return 1
    card, samples = torch.cuda.get_device_name(), rated()
    kinds: tuple[Quantize, ...] = ("none", "8bit", "4bit") if find_spec("bitsandbytes") else ("none",)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        random_model(Path(folder), LLAMA_8B, "cuda", samples)
        for quantize in kinds:
            runs.append(measure(Path(folder), samples, Hyperparameters(), "cuda", quantize))
            print(f"quantize {quantize}: {report(runs[-1], card)}", flush=True)
    return int(runs[0].seconds > LIMIT_S or any(run.peak_bytes > run.estimated_bytes for run in runs))
