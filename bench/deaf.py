"""How often does the proof of a version err: loads that are refused though the engine applies it, and the reverse?

    python -m bench.deaf

Trains five versions of the small model, among them one by the preset *careful* on 8 comments and one behind a
thinking template. Each is served in four ways: as an adapter on the base that it was trained on (4 bits), as an
adapter on a base that was rounded once more, as a merged model, and as an adapter in an engine without
log-probabilities. That makes 20 true loads. The 20 deaf ones are the same without the version; the merged model and
the texts are then those of another rounding of the base.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize, quantize

from burnish.adapters.hosts.base import Continuation, Endpoint
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model, file_digest
from burnish.adapters.manifest import AdapterVersion, Manifest, Probe
from burnish.adapters.merging import ensure_merged
from burnish.adapters.proof import PROVEN, REFUTED, TEXT_TOKENS, Pair, agreement
from burnish.training.job import JobDirectory, JobSpec, Sample
from burnish.training.loop import train
from burnish.training.presets import hyperparameters
from burnish.training.weights import prepared_weights

TOPICS = (
    "Rain",
    "Bread",
    "The moon",
    "A violin",
    "Snow",
    "Paper",
    "Salt",
    "A bicycle",
    "Tea",
    "The sun",
    "Glass",
    "Wood",
)
SHORT = "{} is what most people have heard of at school."
LONG = "{} is a wide subject, and it is worth our while to look at it from several sides. First there is its history."
COMMENT = "too long, one short sentence please"
NAME = "smollm2"

VERSIONS: Mapping[str, dict[str, Any]] = {
    "careful, 8 comments": {"objective": "critique", "preset": "careful", "count": 8},
    "careful, 8 ratings": {"objective": "mis_po", "preset": "careful", "count": 8},
    "balanced, 12 ratings": {"objective": "mis_po", "preset": "balanced", "count": 12},
    "balanced, 8 good answers": {"objective": "sft", "preset": "balanced", "count": 8},
    "thinking template, 8 ratings": {"objective": "mis_po", "preset": "balanced", "count": 8, "thinks": True},
}
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)


def samples(objective: str, count: int) -> Iterator[Sample]:
    for number, topic in enumerate(TOPICS[:count]):
        good = objective == "sft" or (objective != "critique" and number % 2 == 0)
        yield Sample(
            completion_id=f"cmpl_{number}",
            conversation_id=f"conv_{number}",
            feedback_ids=(f"fb_{number}",),
            messages=({"role": "user", "content": f"What is {topic.lower()}?"},),
            reply={"role": "assistant", "content": (SHORT if good else LONG).format(topic)},
            finished=True,
            reward=1.0 if good else -1.0,
            comment=COMMENT if objective == "critique" else None,
            behaviour_version=0,
            held_out=False,
        )


def learnt(folder: Path, weights: Path, digest: str, course: Mapping[str, Any]) -> JobDirectory:
    """Train a version."""
    if course.get("thinks"):
        weights = Path(
            shutil.copytree(prepared_weights(weights, digest, cache_dir() / "weights"), folder / "thinks")
        )
        (weights / "chat_template.jinja").write_text(THINKING)
    spec = JobSpec(
        run_id="bench",
        objective=course["objective"],
        base_model=NAME,
        base_weights=str(weights),
        base_digest=digest,
        weights_cache=str(cache_dir() / "weights"),
        hyperparameters=hyperparameters(course["preset"], course["objective"]),
    )
    job = JobDirectory(folder / "job")
    job.write_job(spec, samples(course["objective"], course["count"]))
    train(job)
    return job


def rounded(gguf: Path, target: Path) -> Path:
    """Copy a base whose weights are on a coarser grid: as far from the trainer's as another quantisation is."""
    shutil.copyfile(gguf, target)
    fine, coarse = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q4_0
    for tensor in GGUFReader(target, "r+").tensors:
        if tensor.tensor_type == fine:
            weights = dequantize(np.asarray(tensor.data), fine)
            tensor.data[:] = quantize(dequantize(quantize(weights, coarse), coarse), fine)
    return target


class Answers:
    """What engines say to the contexts of one version."""

    def __init__(self, job: JobDirectory, folder: Path) -> None:
        self.job, self.folder = job, folder
        self.proof: Sequence[Probe] = job.result().proof

    async def of(self, gguf: Path, adapter: Path | None, tokens: int = 1) -> list[list[Continuation]]:
        """Serve a file; return the answers of the base, and of the version if there is an adapter."""
        host = EmbeddedHost(gguf, base_model=NAME, state_dir=self.folder / "state" / gguf.name)
        try:
            endpoint = await host.load(self.version(host.base_digest) if adapter else None)
            models = [await host.base(endpoint), endpoint] if adapter else [endpoint]
            return [await self._asked(host, model, tokens) for model in models]
        finally:
            await host.close()

    async def _asked(self, host: EmbeddedHost, model: Endpoint, tokens: int) -> list[Continuation]:
        return [await host.continuation(model, probe, tokens) for probe in self.proof]

    def version(self, digest: str) -> AdapterVersion:
        spec = self.job.spec()
        manifest = Manifest(
            **{"version": 1, "created_at": "", "checksums": {}, "base_model": NAME, "base_digest": digest},
            **{"parent": 0, "run_id": "bench", "feedback_ids": (), "objective": spec.objective},
            **{"hyperparameters": {}, "metrics": {}, "proof": self.proof},
        )
        return AdapterVersion(manifest=manifest, path=self.job.adapter, state="candidate", reason="")

    def agreement(self, base: Sequence[Continuation], version: Sequence[Continuation]) -> float:
        return agreement(self.proof, list(map(Pair, base, version)))


def without_logps(answers: Sequence[Continuation]) -> list[Continuation]:
    return [replace(answer, likeliest={}) for answer in answers]


async def measure(
    job: JobDirectory, folder: Path, gguf: Path, coarse: Path, digest: str
) -> dict[str, list[float]]:
    """Return the agreement of each way to serve, true and deaf."""
    answers = Answers(job, folder)
    base, version = await answers.of(gguf, job.adapter)
    coarse_base, coarse_version = await answers.of(coarse, job.adapter)
    await ensure_merged(answers.version(digest), gguf, folder / "merged.gguf")
    [merged] = await answers.of(folder / "merged.gguf", None)
    texts, version_texts = map(without_logps, await answers.of(gguf, job.adapter, TEXT_TOKENS))
    [rounded_texts] = map(without_logps, await answers.of(coarse, None, TEXT_TOKENS))
    return {
        "as trained": [answers.agreement(base, version), answers.agreement(base, base)],
        "rounded base": [
            answers.agreement(coarse_base, coarse_version),
            answers.agreement(coarse_base, coarse_base),
        ],
        "merged": [answers.agreement(base, merged), answers.agreement(base, coarse_base)],
        "texts": [answers.agreement(texts, version_texts), answers.agreement(texts, rounded_texts)],
    }


def main() -> None:
    gguf = ensure_small_model()
    digest = file_digest(gguf)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        coarse = rounded(gguf, folder / "rounded.gguf")
        table = {}
        for number, (name, course) in enumerate(VERSIONS.items()):
            own = folder / str(number)
            own.mkdir(exist_ok=True)
            job = learnt(own, gguf, digest, course)
            table[name] = asyncio.run(measure(job, own, gguf, coarse, digest))
            sys.stdout.write(json.dumps({name: table[name]}) + "\n")
            sys.stdout.flush()
    true, deaf = ([pair[place] for ways in table.values() for pair in ways.values()] for place in (0, 1))
    sys.stdout.write(
        f"true loads: {len(true)}, refused {sum(share < PROVEN for share in true)}, least agreement {min(true):.2f}\n"
        f"deaf loads: {len(deaf)}, passed {sum(share >= PROVEN for share in deaf)}, no clear no "
        f"{sum(share >= REFUTED for share in deaf)}, most agreement {max(deaf):.2f}\n"
    )


if __name__ == "__main__":
    main()
