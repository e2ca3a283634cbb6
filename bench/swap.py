"""Swaps under load: clients stream without pause while versions go live one after the other.

``python -m bench.swap [--swaps 20] [--clients 8]`` prints a table and, as its last line, JSON; it exits 1 when a
limit is exceeded. First the versions are staged, as they are when the gate has passed them (it judges the loaded
version); then each swap is cold, as a rollback is, and boots an engine first. The limit is on the former.

Three versions each say one word of their own for ever, the bare model answers as it does: so an answer that
mixes two versions, or that none of them gives alone on a quiet engine, cannot be overlooked. Clients stream through
the proxy's own relay, log on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.prompts import PROMPTS
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import SMALL_MODEL, ensure_small_model
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from burnish.proxy.config import load_config
from burnish.proxy.feedback import Command
from burnish.proxy.log import Log
from burnish.proxy.relay.guard import Guard
from burnish.proxy.relay.pool import Pool
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.routing import LearningUpstream
from burnish.proxy.surfaces import SURFACES
from tests.support.engine import answer, deltas
from tests.support.inprocess import listening
from tests.support.lora import parrot_lora, write_peft

WORDS = ("Ġred", "Ġgreen", "Ġblue")
TOKENS = 24
# The promise of the issue: from "gate passed" to "new requests get it".
LIMIT_S = 2.0


@dataclass
class Tally:
    """What the clients saw."""

    answers: Counter[int] = field(default_factory=Counter)
    """Whole answers by version."""
    spanned: int = 0
    """Answers during which another version went live."""
    faults: Counter[str] = field(default_factory=Counter)
    """failed, cut, mixed"""
    examples: list[str] = field(default_factory=list)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Swap, dict[int, AdapterVersion | None]]]:
    """Run the embedded engine with three versions, each loaded once before, as after the gate."""
    model = ensure_small_model()
    host = EmbeddedHost(model, base_model=SMALL_MODEL, state_dir=folder / "engine")
    registry = Registry(folder / "adapters")
    swap = Swap(registry, host, LiveRoute())
    versions: dict[int, AdapterVersion | None] = {BASE_VERSION: None}
    try:
        await swap.go_live(None, "start")
        for word in WORDS:
            version = register(registry, host, write_peft(folder / word, parrot_lora(word, model), rank=2))
            await swap.stage(version)
            await swap.unstage(version.number)
            versions[version.number] = version
        yield swap, versions
    finally:
        await swap.close()
        await host.close()


def register(registry: Registry, host: EmbeddedHost, adapter: Path) -> AdapterVersion:
    """Keep an adapter as a version."""
    return registry.register(
        adapter,
        base_model=host.base_model,
        base_digest=host.base_digest,
        parent=BASE_VERSION,
        run_id="run_bench",
        feedback_ids=[],
        objective="none",
        hyperparameters={},
        metrics={},
    )


async def quiet_texts(
    swap: Swap, versions: dict[int, AdapterVersion | None], prompts: list[str]
) -> list[dict[str, int]]:
    """For each prompt, the greedy text of each version on a quiet engine → the version."""
    texts: list[dict[str, int]] = [{} for _ in prompts]
    for number, version in versions.items():
        await swap.go_live(version, "quiet")
        with swap.route.lease() as lease:
            for known, prompt in zip(texts, prompts, strict=True):
                known[await answer(lease.endpoint, prompt, TOKENS)] = number
        await swap.settled()
    assert all(len(known) == len(versions) for known in texts), "the versions must be told apart"
    return texts


@asynccontextmanager
async def proxied(swap: Swap, folder: Path) -> AsyncIterator[str]:
    """Run the proxy's relay in front of the engine; gives its URL."""
    config = load_config({"data_dir": folder})
    log, pool = Log.open(folder / "burnish.db"), Pool(config)
    relay = Relay(
        pool=pool,
        upstream=LearningUpstream(SMALL_MODEL, swap.route),
        guard=Guard(config),
        log=log,
        surfaces={surface.path: surface for surface in SURFACES.values()},
        answer=nobody_rates,
        max_body_bytes=config.max_body_bytes,
    )
    try:
        async with listening(relay) as url:
            yield url
    finally:
        await pool.close()
        log.close()


async def nobody_rates(
    command: Command, messages: list[dict[str, Any]], *, caller: str, session: str | None
) -> str:
    """The bench's clients type no commands."""
    raise AssertionError(f"nobody typed {command}")


async def client(
    swap: Swap, url: str, prompts: list[str], texts: list[dict[str, int]], tally: Tally, stop: asyncio.Event
) -> None:
    """Stream answers without pause, and judge each."""
    turn = 0
    while not stop.is_set():
        turn += 1
        place = turn % len(prompts)
        before = swap.route.live
        try:
            parts = [part async for part in deltas(Endpoint(url, "default", 0), prompts[place], TOKENS)]
        except (aiohttp.ClientPayloadError, AssertionError) as error:
            note(tally, "cut", error)
            continue
        except (aiohttp.ClientError, OSError) as error:
            note(tally, "failed", error)
            continue
        models, text = {part.model for part in parts}, "".join(part.text for part in parts)
        version = texts[place].get(text)
        if version is None or models != {served_name(version)}:
            note(tally, "mixed", f"{models} said {text!r}")
            continue
        tally.answers[version] += 1
        tally.spanned += swap.route.live != before


def served_name(version: int) -> str:
    """What a version calls itself in every chunk."""
    return f"{SMALL_MODEL}@v{version}" if version else SMALL_MODEL


def note(tally: Tally, fault: str, example: object) -> None:
    """Count a fault, and keep what it looked like."""
    tally.faults[fault] += 1
    tally.examples.append(f"{fault}: {example!r}")


async def swap_under_load(swaps: int, clients: int) -> tuple[list[float], list[float], Tally]:
    """Return the seconds of each staged swap, of each cold one, and what the clients saw."""
    prompts, tally, stop = list(PROMPTS[:6]), Tally(), asyncio.Event()
    staged, cold = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder)) as (swap, versions):
            texts = await quiet_texts(swap, versions, prompts)
            async with proxied(swap, Path(folder)) as url, asyncio.TaskGroup() as tasks:
                for _ in range(clients):
                    tasks.create_task(client(swap, url, prompts, texts, tally, stop))
                trained = [version for version in versions.values() if version]
                for turn in range(swaps):
                    version = trained[turn % len(trained)]
                    await swap.stage(version)
                    staged.append((await swap.go_live(version, f"gate passed {turn}")).seconds)
                    await swap.settled()
                for turn in range(swaps):
                    done = await swap.go_live(versions[turn % len(versions)], f"rolled back {turn}")
                    cold.append(done.seconds)
                    await swap.settled()
                stop.set()
    return staged, cold, tally


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=20)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    staged, cold, tally = asyncio.run(swap_under_load(given.swaps, given.clients))
    result = {
        "swaps": 2 * given.swaps,
        "clients": given.clients,
        "gate_passed_to_live_median_s": round(statistics.median(staged), 3),
        "gate_passed_to_live_max_s": round(max(staged), 3),
        "limit_s": LIMIT_S,
        "cold_to_live_median_s": round(statistics.median(cold), 3),
        "cold_to_live_max_s": round(max(cold), 3),
        "answers": sum(tally.answers.values()),
        "answers_that_outlived_a_swap": tally.spanned,
        **{fault: tally.faults[fault] for fault in ("failed", "cut", "mixed")},
    }
    for name, value in result.items():
        print(f"{name:>30}  {value}")
    for example in tally.examples[:5]:
        print(example, file=sys.stderr)
    print(json.dumps(result))
    return int(max(staged) > LIMIT_S or bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
