"""What an engine serves is proved: it must move the answers as the trainer's figures say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters import proof
from burnish.adapters.errors import NotApplied, ProbeFailed
from burnish.adapters.hosts.base import AdapterHost, Continuation
from burnish.adapters.hosts.replicas import Replicas
from burnish.adapters.manifest import AdapterVersion, Likely, Probe
from burnish.adapters.proof import PROVEN, REFUTED, Pair, agreement
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.adapters.engines import KINDS, Embedded, Engine, Mlx, NamedLora, Ollama, Sglang, Vllm
from tests.support.lora import register, write_peft
from tests.support.next_tokens import proof_of
from tests.support.tiny_gguf import TINY, tiny_lora

RESTARTING = [kind for kind in KINDS if kind is not Mlx]
NAMED = [Vllm, Sglang]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "PAUSE_S", 0)


class World:
    """An engine, and the registry whose versions it serves."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.host = engine, engine.open()
        self.registry = Registry(engine.folder / "adapters")
        self.swap = Swap(self.registry, self.host, LiveRoute())
        self.reconciler = Reconciler(self.swap)

    def register(self, seed: int, **provenance: Any) -> AdapterVersion:
        trained = write_peft(self.engine.folder / f"seed-{seed}", tiny_lora(TINY, seed))
        base = {"base_model": "tiny", "base_digest": self.engine.digest}
        version = register(self.registry, trained, **base, **provenance)
        self.engine.versions.append(version)
        return version

    async def proved(self, seed: int) -> AdapterVersion:
        """Register a version with figures, and leave it unloaded."""
        version = self.register(seed)
        await self.host.load(None)
        self.registry.set_proof(version.number, await figures(self.host, version))
        await self.host.unload(version.number)
        return self.registry.get(version.number)

    async def look(self, times: int = 2) -> str:
        """Reconcile; return what is wrong."""
        for _ in range(times):
            await self.reconciler.reconcile_once()
        return self.reconciler.last.fault or self.reconciler.degraded or ""


@pytest.fixture
def world(engine: Engine) -> World:
    return World(engine)


async def figures(host: AdapterHost, version: AdapterVersion) -> tuple[Probe, ...]:
    """Those of a trainer whose base isn't quantised as the engine's is."""
    endpoint, dice = await host.load(version), random.Random(0)
    base = await host.base(endpoint)
    probes = []
    for place in range(8):
        ids = tuple(dice.randrange(300, 2000) for _ in range(6))
        probe = Probe(ids=ids, text=f"{place} {ids}", base=(), version=(), base_text="", version_text="")
        noise: dict[int | str, float] = {}
        before, after = [await host.continuation(each, probe, 8) for each in (base, endpoint)]
        for token in before.likeliest.keys() | after.likeliest.keys():
            noise[token] = dice.gauss(0, 0.2)
        figures = {"base": named(before, noise), "version": named(after, noise)}
        texts = {"base_text": before.text, "version_text": after.text}
        probes.append(probe.model_copy(update={**figures, **texts}))
    return tuple(probes)


def named(said: Continuation, noise: dict[int | str, float]) -> tuple[Likely, ...]:
    """As a trainer writes tokens: with id and text."""
    return tuple(
        (token, "", logp + noise[token]) if isinstance(token, int) else (-1, token, logp + noise[token])
        for token, logp in said.likeliest.items()
    )


async def test_a_version_that_the_engine_applies_is_proved_and_goes_live(world: World) -> None:
    version = await world.proved(1)
    await world.swap.go_live(version, "test")
    assert world.registry.live() == 1
    assert world.swap.proof(1, world.swap.route.live) == "proven"
    await world.swap.close()


async def test_an_engine_that_ignores_a_version_is_found_out_before_it_is_live(world: World) -> None:
    version = await world.proved(1)
    await world.swap.go_live(None, "start")
    world.engine.deafen(version)
    with pytest.raises(NotApplied) as refused:
        await world.swap.go_live(version, "never")
    words = str(refused.value)
    assert world.host.engine in words
    assert "tiny@v1 and ignores it" in words
    assert words.endswith(world.host.remedy)
    assert (world.registry.live(), 1 in await world.host.served()) == (0, False)
    with pytest.raises(NotApplied):
        await world.swap.stage(version)
    await world.swap.close()


@pytest.mark.parametrize("kind", RESTARTING)
async def test_an_engine_that_is_deaf_after_a_restart_takes_the_version_out(world: World) -> None:
    version = await world.proved(1)
    await world.look(1)
    await world.swap.go_live(version, "test")
    assert await world.look() == ""
    world.engine.deafen(version)
    await world.engine.restart()
    fault = await world.look(3)
    assert "v1 cannot be served" in fault
    assert "ignores it" in fault
    assert world.registry.live() == 0
    await world.swap.close()


@pytest.mark.parametrize("kind", NAMED)
async def test_a_rollback_is_proved_afterwards(world: World) -> None:
    first, second = await world.proved(1), await world.proved(2)
    for version in (first, second):
        await world.swap.go_live(version, "test")
    world.swap.forget_proofs()
    world.engine.deafen(first)
    await world.swap.go_live(world.registry.get(1), "back at once")
    assert world.registry.live() == 1
    await world.look()
    assert world.registry.live() == 0, "v2 isn't applied either"
    await world.swap.close()


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("logprobs", [True, False])
async def test_what_was_proved_isnt_asked_again_until_the_engine_restarts(
    engine: NamedLora, logprobs: bool
) -> None:
    engine.double.logprobs = logprobs
    world = World(engine)
    version = await world.proved(1)
    await world.swap.stage(version)
    asked = len(engine.posted("/v1/completions"))
    await world.swap.go_live(version, "test")
    await world.look()
    assert len(engine.posted("/v1/completions")) == asked
    await engine.restart()
    await world.look()
    assert len(engine.posted("/v1/completions")) > asked + 16
    await world.swap.close()


@pytest.mark.parametrize("kind", NAMED)
async def test_a_busy_engine_is_asked_again_and_costs_no_version_its_place(engine: NamedLora) -> None:
    world = World(engine)
    version = await world.proved(1)
    engine.double.busy = 2
    await world.swap.go_live(version, "test")
    world.swap.forget_proofs()
    engine.double.busy = 1000
    assert await world.look() == ""
    assert (world.registry.live(), world.swap.proof(1, world.swap.route.live)) == (1, None)
    with pytest.raises(ProbeFailed, match="overloaded"):
        await world.swap.go_live(world.register(2), "never")
    await world.swap.close()


@pytest.mark.parametrize("kind", [Vllm])
async def test_one_deaf_replica_is_enough_to_refuse_a_version(engine: NamedLora, tmp_path: Path) -> None:
    second = Vllm(tmp_path / "second", engine.gguf, closing=engine.closing, versions=engine.versions)
    await second.start()
    world = World(engine)
    world.swap.host = Replicas({each.url: each.open() for each in (engine, second)})
    version = await world.proved(1)
    second.double.deaf = True
    with pytest.raises(NotApplied, match=rf"vLLM at {second.url} took tiny@v1"):
        await world.swap.stage(version)
    assert engine.double.loaded == second.double.loaded == {}
    await world.swap.close()


@pytest.mark.parametrize("kind", NAMED)
async def test_texts_alone_tell_a_deaf_engine(engine: NamedLora) -> None:
    engine.double.logprobs = False
    world = World(engine)
    version = world.register(1)
    true = proof_of(version.path)
    world.registry.set_proof(1, true)
    version = world.registry.get(1)
    await world.swap.stage(version)
    await world.swap.retire(1)
    world.swap.forget_proofs()
    engine.double.deaf = True
    with pytest.raises(NotApplied):
        await world.swap.stage(version)
    await world.swap.close()


@pytest.mark.parametrize("kind", NAMED)
async def test_another_versions_weights_are_no_proof(engine: NamedLora) -> None:
    """As from a cache of the weights that had the name before."""
    world = World(engine)
    version, other = world.register(1), world.register(2)
    world.registry.set_proof(1, proof_of(other.path))
    with pytest.raises(ProbeFailed):
        await world.swap.go_live(world.registry.get(version.number), "never")
    await world.swap.close()


@pytest.mark.parametrize("kind", NAMED)
async def test_half_an_adapter_is_no_proof_and_no_clear_no(engine: NamedLora) -> None:
    """As by an engine that leaves out the layers whose names it doesn't know."""
    world = World(engine)
    version = world.register(1)
    engine.double.strength = 0.4
    world.registry.set_proof(1, proof_of(version.path))
    with pytest.raises(ProbeFailed, match="can't be shown to apply") as refused:
        await world.swap.go_live(world.registry.get(1), "never")
    assert not isinstance(refused.value, NotApplied)
    await world.swap.close()


@pytest.mark.parametrize("kind", [Embedded, Ollama, *NAMED])
async def test_without_figures_a_difference_from_the_base_proves_weakly(world: World) -> None:
    await world.swap.go_live(world.register(1), "imported")
    assert world.swap.proof(1, world.swap.route.live) == "weakly proven"
    deaf = world.register(2)
    world.engine.deafen(deaf)
    with pytest.raises(NotApplied):
        await world.swap.go_live(deaf, "never")
    await world.swap.close()


def models(moved: float, rounding: float, seed: int = 0) -> tuple[list[Probe], list[Pair]]:
    """A trainer's figures, and an engine that shows ``moved`` of the shift and rounds each of its models otherwise."""
    dice = random.Random(seed)
    probes, pairs = [], []
    for _ in range(8):
        base = [dice.uniform(-6, -1) for _ in range(30)]
        shift = [dice.gauss(0, 0.3) for _ in base]
        version = [b + s for b, s in zip(base, shift, strict=True)]
        offset = [dice.gauss(0, 0.5) for _ in base]
        engine = [
            [b + o + share * s + dice.gauss(0, rounding) for b, o, s in zip(base, offset, shift, strict=True)]
            for share in (0, moved)
        ]
        text = {"ids": (1,), "text": "x", "base_text": "", "version_text": ""}
        probes.append(Probe(base=listed(base), version=listed(version), **text))
        before, after = (Continuation("", {i: logp for i, _, logp in listed(each)[:10]}) for each in engine)
        pairs.append(Pair(before, after))
    return probes, pairs


def listed(logps: Sequence[float]) -> tuple[Likely, ...]:
    order = sorted(range(len(logps)), key=logps.__getitem__, reverse=True)
    return tuple((token, str(token), logps[token]) for token in order)


@pytest.mark.parametrize("seed", range(5))
def test_a_merged_model_is_judged_by_the_shift_and_not_by_its_rounding(seed: int) -> None:
    """A merged model differs from its base in any case."""
    assert agreement(*models(1.0, 0.15, seed)) > PROVEN
    assert agreement(*models(0.0, 0.15, seed)) < REFUTED


def test_engines_that_show_texts_of_tokens_are_judged_as_those_that_show_ids() -> None:
    probes, pairs = models(1.0, 0.0)
    by_text = [Pair(*map(with_texts, pair)) for pair in pairs]
    assert agreement(probes, by_text) == pytest.approx(agreement(probes, pairs))


def test_texts_that_differ_are_no_clear_no() -> None:
    probe = Probe(ids=(), text="", base=(), version=(), base_text="a red fox", version_text="a blue sky")
    base = Continuation("a red cat")
    assert agreement([probe], [Pair(base, base)]) < REFUTED
    assert REFUTED <= agreement([probe], [Pair(base, Continuation("a red fox"))]) < PROVEN
    assert agreement([probe], [Pair(base, Continuation("a blue sky"))]) >= PROVEN


def test_a_text_that_both_of_the_trainers_models_write_speaks_for_a_version_that_begins_to_write_it() -> None:
    probe = Probe(ids=(), text="", base=(), version=(), base_text="a red fox", version_text="a red fox")
    other, same = Continuation("a dog"), Continuation("a red fox")
    assert agreement([probe], [Pair(other, same)]) >= PROVEN
    assert REFUTED <= agreement([probe], [Pair(same, other)]) < PROVEN
    assert agreement([probe] * 2, [Pair(other, same), Pair(other, other)]) >= PROVEN, (
        "the second doesn't tell"
    )


def with_texts(said: Continuation) -> Continuation:
    return replace(said, likeliest={str(token): logp for token, logp in said.likeliest.items()})


async def test_a_proof_stays_in_the_manifest_and_can_be_taken_out(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    version = register(registry, write_peft(tmp_path / "made", tiny_lora(TINY, 1)))
    registry.set_proof(1, proof_of(version.path))
    assert registry.get(1).manifest.model_copy(update={"proof": ()}) == version.manifest
    registry.set_proof(1, ())
    assert registry.get(1) == version
    registry.verify(1)
