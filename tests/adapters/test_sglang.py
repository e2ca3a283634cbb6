"""What is SGLang's alone; what it shares with vLLM is in test_vllm.py, which runs each test on both."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError, IncompatibleAdapter
from burnish.adapters.hosts.sglang import SglangHost
from tests.support.inprocess import listening
from tests.support.lora import version_of, write_peft
from tests.support.vllm_double import SglangDouble, tiny_lora

DIGEST = "sha256:" + "0" * 64


async def test_a_base_with_a_colon_in_its_name_cannot_be_served() -> None:
    host = SglangHost("http://127.0.0.1:9", base_model="qwen3:8b", base_digest=DIGEST, versions=list)
    with pytest.raises(EngineError, match="--served-model-name qwen3-8b"):
        await host.load(None)


async def test_a_directory_whose_path_has_telling_words_changes_no_diagnosis(tmp_path: Path) -> None:
    """SGLang puts the path into its words; a user called "rank" or "repository" must not decide the error."""
    double = SglangDouble()
    path = write_peft(tmp_path / "repository" / "v0001", tiny_lora(1, 64), 64)
    version = version_of(path, 1, DIGEST)
    async with listening(double.app()) as url:
        host = SglangHost(url, base_model="smollm2", base_digest=DIGEST, versions=lambda: [version])
        with pytest.raises(IncompatibleAdapter, match=r"rank 64.*--max-lora-rank 64"):
            await host.load(version)
        await host.close()
