"""The gate with candidates; half of them are damaged on purpose.

``python -m bench.gate [--out DIR] [--users N] [--limit N]`` prints a table and exits 1 unless no damaged candidate
passes and at least 80 % of the healthy ones do. It takes about two minutes a candidate, keeps what it has done in DIR,
and goes on where it stopped.

Simulated users like short answers, 40 ratings each, of answers that the embedded engine gave. Training, sampling from
the engine, evaluation and gate are burnish's own; only the proxy in front is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from bench.gate_candidates import Candidate, candidates
from bench.learning.preferences import PREFERENCES
from bench.learning.questions import BRIEFLY, PROMPTS
from burnish.adapters.errors import CorruptAdapter
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model
from burnish.adapters.manifest import AdapterVersion, Provenance
from burnish.adapters.proof import generates
from burnish.adapters.registry import Registry
from burnish.adapters.weights_file import CONFIG, WEIGHTS
from burnish.gate import judge
from burnish.gate.replies import last_question
from burnish.gate.rewards import RatedReply
from burnish.learner import sampling
from burnish.learner.evidence import evidence
from burnish.learner.sampling import GatePrompt, Sampler
from burnish.learner.trainer import run_step
from burnish.training.job import JobDirectory, JobSpec, PolicyReply, Sample
from burnish.training.presets import hyperparameters

RATED = 40
# Of each class; export.hold_out takes as many.
HELD_OUT_EVERY = 4
PARAMS = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 96}
GOOD_THAT_PASS = 0.8
PLEASED = PREFERENCES["brief"].satisfied


class Bench:
    """The setup that all candidates share."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.out = out
        self.results = out / "results.jsonl"
        self._model = ensure_small_model()
        self._host = EmbeddedHost(self._model, base_model="smollm2", state_dir=out / "engine", threads=1)
        self._registry = Registry(out / "adapters")

    async def close(self) -> None:
        """End the engine."""
        await self._host.close()

    async def judged(self, candidate: Candidate) -> dict[str, Any]:
        """Train, spoil, serve, sample, evaluate and judge one candidate."""
        started = time.monotonic()
        samples, incumbent = await self._user(candidate.user)
        trained = await self._trained(candidate, samples)
        record = {"name": candidate.name, "healthy": candidate.healthy}
        try:
            version = self._registered(candidate, trained)
        except CorruptAdapter as error:
            return record | {"outcome": "refused", "reason": str(error), "checks": {}}
        endpoint = await self._host.load(version)
        sampler = Sampler("candidate", endpoint, _gates(_prompts(candidate.user), samples))
        try:
            await generates(self._host, endpoint)
            await sampling.ask([sampler])
        finally:
            await self._host.unload(version.number)
        answers = sampling.sorted_answers([*sampler.replies.values(), *incumbent])
        rollouts = answers.replies
        job = JobDirectory(self.out / "judged" / _file_name(candidate.name))
        job.write_job(self._spec(candidate), list(samples))
        if not job.adapter.exists():
            job.adapter.symlink_to(version.path)
        job.write_replies(rollouts)
        await run_step("evaluate", job)
        verdict = judge(evidence(job.evaluation(), answers, [_rated(each) for each in samples], None))
        checks = {check.name: {"passed": check.passed, "text": check.text} for check in verdict.checks}
        pleased = {
            policy: [PLEASED(each.reply, each.finished) for each in rollouts if each.policy == policy]
            for policy in ("incumbent", "candidate")
        }
        return record | {
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "pleased": {policy: sum(each) / len(each) for policy, each in pleased.items()},
            "checks": checks,
            "examples": [each.model_dump() for each in verdict.examples],
            "seconds": time.monotonic() - started,
        }

    async def _user(self, seed: int) -> tuple[list[Sample], list[PolicyReply]]:
        """Return a user's ratings, and what the base model answers to the gate's questions; asked once."""
        job = JobDirectory(self.out / f"user-{seed}")
        if not (job.path / "job.json").exists():
            bare, prompts = await self._host.load(None), _prompts(seed)
            # In another order, so that the dice are others than the gate's.
            sampler = Sampler("incumbent", bare, prompts[::-1])
            await sampling.ask([sampler])
            samples = _samples([sampler.replies[prompt.id] for prompt in prompts[:RATED]])
            gate = Sampler("incumbent", bare, _gates(prompts, samples))
            await sampling.ask([gate])
            job.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            job.write_replies(list(gate.replies.values()))
            job.write_job(self._spec(Candidate("", True, seed)), samples)
        return job.samples(), job.replies()

    async def _trained(self, candidate: Candidate, samples: Sequence[Sample]) -> Path:
        job = JobDirectory(self.out / "trained" / _file_name(candidate.job))
        if not (job.path / "result.json").exists():
            taught = candidate.taught([sample for sample in samples if not sample.held_out])
            job.write_job(self._spec(candidate), taught)
            await run_step("train", job)
        return job.adapter

    def _registered(self, candidate: Candidate, trained: Path) -> AdapterVersion:
        """Raises CorruptAdapter."""
        directory = trained
        if candidate.spoil:
            directory = self.out / "spoilt" / _file_name(candidate.name)
            directory.mkdir(parents=True, exist_ok=True)
            save_file(candidate.spoil(load_file(trained / WEIGHTS)), directory / WEIGHTS)
            (directory / CONFIG).write_bytes((trained / CONFIG).read_bytes())
        return self._registry.register(
            directory,
            Provenance(
                base_model="smollm2",
                base_digest=self._host.base_digest,
                parent=0,
                run_id=candidate.name,
                feedback_ids=(),
                objective=candidate.objective,
                hyperparameters={},
                metrics={},
            ),
        )

    def _spec(self, candidate: Candidate) -> JobSpec:
        return JobSpec(
            run_id=candidate.name,
            objective=candidate.objective,
            base_model="smollm2",
            base_weights=str(self._model),
            base_digest=self._host.base_digest,
            weights_cache=str(cache_dir() / "weights"),
            hyperparameters=hyperparameters(
                candidate.preset, candidate.objective, instructed=True, **candidate.settings
            ),
            seed=candidate.user,
            threads=max(1, (os.cpu_count() or 1) // 2),
        )


def _gates(prompts: Sequence[GatePrompt], samples: Sequence[Sample]) -> list[GatePrompt]:
    """Return the prompts of the gate: unlearnt prompts of the user, ordinary questions, requests, and facts."""
    learnt = {sample.completion_id for sample in samples if not sample.held_out}
    new = [prompt for prompt in prompts if prompt.id not in learnt]
    asked = [*new, *sampling.ordinary(prompts)][: sampling.MAX_PROMPTS]
    return [*asked, *sampling.requests(asked), *sampling.fact_prompts()]


def _prompts(seed: int) -> list[GatePrompt]:
    """Return what a user asked: the first ``RATED`` get a rating."""
    chosen = random.Random(seed).sample(PROMPTS, sampling.MAX_PROMPTS)
    return [
        GatePrompt(
            f"cmpl_{place:02d}",
            ({"role": "system", "content": BRIEFLY}, {"role": "user", "content": question}),
            PARAMS,
            f"cmpl_{place:02d}",
        )
        for place, question in enumerate(chosen)
    ]


def _samples(replies: Sequence[PolicyReply]) -> list[Sample]:
    """Rate: short is good. A quarter of each class is held out."""
    seen = {True: 0, False: 0}
    samples = []
    for number, each in enumerate(replies):
        good = PLEASED(each.reply, each.finished)
        seen[good] += 1
        samples.append(
            Sample(
                completion_id=each.prompt_id,
                conversation_id=f"conv_{number}",
                feedback_ids=(f"fb_{number}",),
                messages=each.messages,
                reply={"role": "assistant", "content": each.reply},
                finished=each.finished,
                reward=1.0 if good else -1.0,
                behaviour_version=0,
                held_out=seen[good] % HELD_OUT_EVERY == 0,
            )
        )
    return samples


def _rated(sample: Sample) -> RatedReply:
    return RatedReply(
        sample.conversation_id,
        last_question(sample.messages),
        str(sample.reply["content"]),
        sample.finished,
        sample.reward,
        sample.weight,
    )


def _file_name(name: str) -> str:
    return "".join(each if each.isalnum() or each == "-" else "_" for each in name)


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _report(records: Sequence[dict[str, Any]]) -> bool:
    """Print what was decided; return whether it is as it should be."""
    print(f"{'candidate':<32}{'outcome':<12}reason")
    for each in records:
        print(f"{each['name']:<32}{each['outcome']:<12}{each['reason'][:160]}")
    healthy = [each["outcome"] for each in records if each["healthy"]]
    damaged = [each["outcome"] for each in records if not each["healthy"]]
    let_in, let_through = damaged.count("passed"), healthy.count("passed")
    print(
        f"damaged that pass: {let_in} of {len(damaged)}; healthy that pass: {let_through} of {len(healthy)}"
    )
    print(
        json.dumps({"damaged": len(damaged), "passed": let_in, "healthy": len(healthy), "let": let_through})
    )
    return let_in == 0 and let_through >= GOOD_THAT_PASS * len(healthy)


async def _run(out: Path, users: int, limit: int) -> bool:
    bench = Bench(out)
    done = {each["name"] for each in _records(bench.results)}
    waiting = [each for each in candidates(users) if each.name not in done]
    try:
        for candidate in waiting[:limit]:
            print(f"{time.strftime('%H:%M:%S')} {candidate.name} …", file=sys.stderr, flush=True)
            record = await bench.judged(candidate)
            with bench.results.open("a") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
    finally:
        await bench.close()
    named = {candidate.name for candidate in candidates(users)}
    return _report([each for each in _records(bench.results) if each["name"] in named])


def main() -> int:
    """Judge what has not been judged yet, and report on all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=cache_dir() / "bench-gate", help="where it keeps what it did"
    )
    parser.add_argument("--users", type=int, default=6, help="two healthy candidates each")
    parser.add_argument("--limit", type=int, default=1000, help="judge no more than so many this time")
    given = parser.parse_args()
    return 0 if asyncio.run(_run(given.out, given.users, given.limit)) else 1


if __name__ == "__main__":
    sys.exit(main())
