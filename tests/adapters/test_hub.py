"""Weights by their name on the hub, out of a cache laid out as huggingface_hub does; there is no network here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.adapters.hosts.hub import hub_id

REVISION = "0123456789abcdef0123456789abcdef01234567"


def snapshot(home: Path, files: dict[str, str]) -> Path:
    """Put a model "Qwen/Small" into a cache."""
    model = home / "hub" / "models--Qwen--Small"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(REVISION)
    path = model / "snapshots" / REVISION
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_text(content)
    return path


def run(home: Path, code: str) -> str:
    """In a process of its own: huggingface_hub reads its environment when it is imported."""
    environment = {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9"}
    environment |= {"PYTHONPATH": ":".join(sys.path), "PATH": ""}
    program = f"from burnish.adapters.hosts.hub import cached, downloaded\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


NAMES = ["Qwen/Qwen3-0.6B", "a/b", "HuggingFaceTB/SmolLM2-135M-Instruct"]
PATHS = ["/models/base", "~/models", "./a/b", "../a", "a/b/c", "plain", "", "a/..", "a/b\n", "a//b", "a/.b"]


@pytest.mark.parametrize("name", [*NAMES, *PATHS])
def test_names_of_models_differ_from_paths(name: str) -> None:
    assert hub_id(name) == (name if name in NAMES else None)


def test_what_is_in_the_cache_is_found_without_network(tmp_path: Path) -> None:
    path = snapshot(tmp_path, {"config.json": "{}", "model.safetensors": "x"})
    assert run(tmp_path, "print(cached('Qwen/Small'))") == str(path)
    assert run(tmp_path, "print(downloaded('Qwen/Small'))") == str(path)


SHARDS = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config.json": "{}"},
        {"model.safetensors": "x"},
        {"config.json": "{}", "pytorch_model.bin": "a pickle"},
        {"config.json": "{}", "model-1.safetensors": "x", "model.safetensors.index.json": json.dumps(SHARDS)},
    ],
)
def test_what_is_not_whole_does_not_count(tmp_path: Path, files: dict[str, str]) -> None:
    snapshot(tmp_path, files)
    assert run(tmp_path, "print(cached('Qwen/Small'))") == "None"


def test_a_model_that_cannot_be_fetched_says_what_to_do(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        "from burnish.adapters.errors import EngineError\n"
        "try: downloaded('Qwen/Small')\n"
        "except EngineError as error: print(error)",
    )
    assert "Qwen/Small" in said
    assert "check the name and the network" in said
    assert "set train.base" in said
