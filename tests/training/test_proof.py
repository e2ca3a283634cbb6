"""The figures that the trainer writes are those of an engine that applies the version, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.adapters.errors import NotApplied
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.manifest import AdapterVersion, Probe
from burnish.adapters.proof import prove
from burnish.training import loop
from burnish.training.job import Hyperparameters, JobDirectory
from burnish.training.loop import train
from burnish.training.proof import CONTEXT_TOKENS, LISTED
from tests.adapters.engines import zeros_in_place_of
from tests.support.jobs import Base, brief_samples, job_spec, write_job
from tests.support.lora import version_of

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def job(tiny: Base, tmp_path_factory: pytest.TempPathFactory) -> JobDirectory:
    far = Hyperparameters(epochs=2, batch_size=2, learning_rate=1e-2, kl_stop=10)
    job = write_job(tmp_path_factory.mktemp("job"), tiny, brief_samples(10, 0), hyperparameters=far)
    train(job)
    return job


async def served(base: Base, adapter: Path, proof: tuple[Probe, ...], state: Path, *, deaf: bool) -> str:
    """Load a version into the real engine; return how it was proved."""
    host = EmbeddedHost(base.gguf, base_model="tiny", state_dir=state)
    version = version_of(adapter, 1, host.base_digest, "tiny")
    manifest = version.manifest.model_copy(update={"proof": proof})
    version = AdapterVersion(**{**dict(version), "manifest": manifest})
    if deaf:
        zeros_in_place_of(version, base.gguf, state, host.base_digest)
    try:
        return await prove(host, version, await host.load(version))
    finally:
        await host.close()


async def test_a_trained_version_is_proved_in_the_real_engine(
    job: JobDirectory, tiny: Base, tmp_path: Path
) -> None:
    proof = job.result().proof
    assert len(proof) == 8
    assert all(len(probe.ids) <= CONTEXT_TOKENS and probe.text for probe in proof)
    assert all(len(probe.base) == len(probe.version) == LISTED for probe in proof)
    assert await served(tiny, job.adapter, proof, tmp_path, deaf=False) == "proven"


async def test_an_engine_that_answers_as_the_base_model_is_refused(
    job: JobDirectory, tiny: Base, tmp_path: Path
) -> None:
    with pytest.raises(NotApplied, match=r"the embedded engine at .* took tiny@v1 and ignores it"):
        await served(tiny, job.adapter, job.result().proof, tmp_path, deaf=True)


async def test_a_version_without_a_proof_gets_one_by_ordinary_questions(
    job: JobDirectory, tiny: Base, tmp_path: Path
) -> None:
    later = JobDirectory(tmp_path / "later")
    later.write_job(job_spec(tiny, parent_adapter=str(job.adapter)), [])
    loop.prove(later)
    proof = later.proof().proof
    assert len(proof) == 8
    assert not {probe.ids for probe in proof} & {probe.ids for probe in job.result().proof}
    assert await served(tiny, job.adapter, proof, tmp_path / "true", deaf=False) == "proven"
    with pytest.raises(NotApplied):
        await served(tiny, job.adapter, proof, tmp_path / "deaf", deaf=True)


def test_a_version_that_moves_nothing_has_no_proof(tiny: Base, tmp_path: Path) -> None:
    still = Hyperparameters(epochs=1, batch_size=8, learning_rate=1e-9)
    assert train(write_job(tmp_path / "job", tiny, brief_samples(8, 0), hyperparameters=still)).proof == ()
