"""A burnish with versions, made by the real parts: log, registry, gate. No training, so a test has it in seconds.

v1 was put to use and answers now; v2 learnt from an agent's rewards and failed the checks; v3 passed them and waits.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from burnish.adapters import examples
from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.registry import PASSED_AGAINST, Registry
from burnish.gate import Verdict, judge
from burnish.learner.curve import curve
from burnish.proxy import ids
from burnish.proxy.log import Log
from burnish.proxy.log.runs import Run
from burnish.training.job import JobDirectory, PolicyReply
from tests.gate.test_gate import DAMAGE, HEALTHY, LIKED
from tests.proxy.log.exchanges import capture, rate, user
from tests.support.inprocess import calling
from tests.support.lora import register, write_peft
from tests.support.patience import within
from tests.support.tiny_gguf import TINY, tiny_lora

BY_HAND = {"promote": "manual", "schedule": "manual", "on_battery": True, "max_load": 1, "memory_gb": 0}
QUESTION = "Why is the sky blue?"
DOUBTED = "the other ratings speak against it"


@dataclass
class Learnt:
    """The running burnish."""

    url: str
    client: httpx.AsyncClient
    data: Path
    unlearnt: str
    """The ID of the answer that taught v1 nothing."""
    run_of_v1: str

    async def get(self, path: str) -> Any:
        return (await self.client.get(path)).raise_for_status().json()

    async def live(self) -> int:
        """Return the version that answers, as the log has it of a new answer."""
        name = (await self.ask()).headers["x-burnish-completion-id"]
        return int((await self.get(f"/burnish/completions/{name}"))["adapter_version"])

    async def ask(self, **headers: str) -> httpx.Response:
        asked = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        return await self.client.post("/v1/chat/completions", json=asked, headers=headers)


@asynccontextmanager
async def learnt_running(folder: Path, model: Path) -> AsyncIterator[Learnt]:
    """Run burnish on the tiny model, in this process."""
    data = folder / "data"
    data.mkdir()
    log = Log.open(data / "burnish.db")
    try:
        unlearnt, run_of_v1 = await _made(log, data, folder, weights_digest(model))
    finally:
        log.close()
    async with calling(folder, model=str(model), engine="auto", context=512, train=BY_HAND) as client:
        client.timeout = httpx.Timeout(within(120))
        yield Learnt(str(client.base_url).rstrip("/"), client, data, unlearnt, run_of_v1)


async def _made(log: Log, data: Path, folder: Path, digest: str) -> tuple[str, str]:
    registry = Registry(data / "adapters")
    rated = [await _rated(log, number) for number in range(6)]
    runs = [ids.run_id() for _ in range(3)]
    taught: list[dict[str, Any]] = [
        {"feedback_ids": tuple(feedback for _, feedback in rated), "unlearnt": {rated[0][0]: DOUBTED}},
        {"parent": 1, "objective": "rloo", "metrics": {"episodes": 96, "reward": 0.25}},
        {"parent": 1},
    ]
    for seed, (run, facts) in enumerate(zip(runs, taught, strict=True), 1):
        adapter = write_peft(folder / f"made-{seed}", tiny_lora(TINY, seed))
        register(registry, adapter, digest, run_id=run, **{"objective": "mis_po"} | facts)
    passed, failed = judge(LIKED), judge(replace(HEALTHY, candidate=DAMAGE["repetitive"]))
    _judged(registry, 1, passed, **{PASSED_AGAINST: 0})
    registry.record(1, "live", f"passed the gate: {passed.reason}")
    _judged(registry, 2, failed)
    _judged(registry, 3, passed, **{PASSED_AGAINST: 1})
    for version, (run, status) in enumerate(zip(runs, ("live", "rejected", "candidate"), strict=True), 1):
        now = time.time()
        await log.start_run(Run(run, now - 60, now, status, "as a test wants it", version, 6))  # type: ignore[arg-type]
    points = curve([_step(number) for number in range(1, 41)])
    assert points
    await log.keep_curve(runs[2], points)
    _answers(JobDirectory(data / "jobs" / runs[0]), rated[0][0], before=0, after=1)
    _answers(JobDirectory(data / "jobs" / runs[2]), rated[0][0], before=1, after=3)
    return rated[0][0], runs[0]


async def _rated(log: Log, number: int) -> tuple[str, str]:
    """Log an answer and rate it; return both IDs."""
    answer = capture(log, [user(f"Doubtful question {number}?")], f"Answer {number}.", adapter_version=0)
    rater = "ann" if number % 3 else "bob"
    given = await rate(log, answer, 1.0 if number % 2 else -1.0, rater=rater, scale="binary")
    return answer, given.id


def _judged(registry: Registry, version: int, verdict: Verdict, **details: Any) -> None:
    kept = verdict.model_dump(mode="json", exclude={"examples"})
    examples.keep(registry.root, version, [each.model_dump(mode="json") for each in verdict.examples])
    state = "rejected" if verdict.outcome == "rejected" else "candidate"
    registry.record(version, state, verdict.reason, verdict=kept, **details)  # type: ignore[arg-type]


def _step(number: int) -> dict[str, Any]:
    shifts = {"kl_per_token": number / 100, "good_shift": number / 50, "bad_shift": 0}
    return {"step": number, "loss": 1 / number} | shifts


def _answers(job: JobDirectory, prompt: str, before: int, after: int) -> None:
    job.path.mkdir(parents=True)
    messages = ({"role": "user", "content": QUESTION},)
    sides: tuple[tuple[Any, int], ...] = (("candidate", after), ("incumbent", before))
    asked: dict[str, Any] = {"prompt_id": prompt, "messages": messages, "finished": True}
    texts = {version: f"Said by version {version}." for _, version in sides}
    job.write_replies([PolicyReply(policy=p, version=v, reply=texts[v], **asked) for p, v in sides])
