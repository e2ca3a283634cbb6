"""Which command starts an engine, and what is refused before it is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts import recipes
from burnish.adapters.hosts.recipes import Recipe, recipe_for
from burnish.config.model_names import ManagedKind


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment that has every engine."""
    return executable(tmp_path / "python")


def executable(path: Path) -> Path:
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o700)
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "Qwen3 0.6B"
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").touch()
    return path


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "Tiny.Q4_1.gguf"
    path.write_bytes(b"GGUF")
    return path


def made(kind: ManagedKind, model: Path | str | None, tmp_path: Path, **given: Any) -> Recipe:
    usual: dict[str, Any] = {"rank": 16, "sleeps": False, "state_dir": tmp_path / "engine"}
    return recipe_for(kind, str(model) if model else None, **usual | given)


def test_vllm_can_swap_and_serves_only_this_machine(
    directory: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "of the user's own vLLM")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("PYTHONPATH", "of this environment")
    arguments = ["--max-model-len", "8192", "--port=9001"]
    found = made("vllm", directory, tmp_path, python=python, rank=20, arguments=arguments)
    line = " ".join(found.command(9001))
    server = f"{python} -m vllm.entrypoints.openai.api_server"
    assert line.startswith(f"{server} --max-model-len 8192 --host 127.0.0.1")
    assert f"--model {directory} --served-model-name qwen3-0.6b" in line
    assert "--enable-lora --max-loras 3 --max-lora-rank 32" in line
    assert line.endswith("--port 9001")
    assert (found.model, found.weights, found.fixed_port) == ("qwen3-0.6b", directory, 9001)
    assert found.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert found.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert found.environment["VLLM_API_KEY"] == found.api_key != "of the user's own vLLM"
    assert not {"PYTHONPATH", "VLLM_SERVER_DEV_MODE"} & found.environment.keys()


def test_vllm_on_a_shared_gpu_can_sleep(directory: Path, python: Path, tmp_path: Path) -> None:
    found = made("vllm", directory, tmp_path, python=python, sleeps=True)
    assert "--enable-sleep-mode" in found.program
    assert found.environment["VLLM_SERVER_DEV_MODE"] == "1"


def test_mlx_is_asked_for_by_its_directory(directory: Path, python: Path, tmp_path: Path) -> None:
    found = made("mlx", directory, tmp_path, python=python)
    assert found.program[:4] == (str(python), "-m", "mlx_lm", "server")
    assert found.model == str(directory)


def test_llama_server_loads_the_base_at_once(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = executable(tmp_path / "llama-server")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = made("llama-server", gguf, tmp_path, arguments=["-c", "8192"])
    assert found.program[0] == str(program)
    assert "--cache-ram 0" in " ".join(found.program)
    assert found.preset_text == f"[tiny.q4_1]\nmodel = {gguf}\nload-on-startup = true\n"
    listing = {"data": [{"id": "tiny.q4_1", "status": {"value": "loading"}}]}
    assert not found.is_warm(listing)
    listing["data"][0]["status"] = {"value": "loaded"}
    assert found.is_warm(listing)
    listing["data"][0]["status"] = {"value": "unloaded", "failed": True}
    with pytest.raises(EngineError, match="can't load"):
        found.is_warm(listing)


def test_llama_server_is_found_without_a_path(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = executable(tmp_path / "llama-server")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(recipes, "USUAL_PLACES", (str(tmp_path),))
    assert made("llama-server", gguf, tmp_path).program[0] == str(program)


def test_an_engine_that_is_not_installed_says_how_to_install_it(
    directory: Path, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(recipes, "USUAL_PLACES", ("~/none",))
    with pytest.raises(EngineError, match=r"brew install llama\.cpp"):
        made("llama-server", gguf, tmp_path)
    with pytest.raises(EngineError, match=r"vLLM isn't installed here. Run: .*vllm.*engine_python"):
        made("vllm", directory, tmp_path)
    with pytest.raises(EngineError, match=f"isn't installed for {sys.executable}. Run: .* install vllm"):
        made("vllm", directory, tmp_path, python=Path(sys.executable))
    with pytest.raises(EngineError, match="isn't a program"):
        made("mlx", directory, tmp_path, python=gguf)


Wrong = Callable[[Path], Path | str | None]
WRONG: list[tuple[ManagedKind, Wrong, str]] = [
    ("vllm", lambda _: None, "vLLM needs a model"),
    ("mlx", lambda tmp: tmp / "Tiny.Q4_1.gguf", "for a GGUF take --engine llama-server"),
    ("vllm", lambda tmp: tmp, "has no config.json"),
    ("vllm", lambda tmp: tmp / "missing", "doesn't exist, expected a Hugging Face directory"),
    ("llama-server", lambda tmp: tmp, "take --engine vllm or mlx"),
    ("llama-server", lambda tmp: tmp / "missing.gguf", "missing.gguf can't be read: No such file"),
    ("llama-server", lambda tmp: tmp / "python", "isn't a GGUF file"),
]


@pytest.mark.usefixtures("gguf")
@pytest.mark.parametrize(("kind", "model", "words"), WRONG)
def test_a_model_that_the_engine_cannot_serve_is_refused(
    kind: ManagedKind, model: Wrong, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "llama-server")
    python = executable(tmp_path / "python")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=words):
        made(kind, model(tmp_path), tmp_path, python=python)


def test_a_model_on_the_hub_is_not_downloaded_by_a_check(python: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"Qwen/Qwen3-0\.6B isn't downloaded yet"):
        made("vllm", "Qwen/Qwen3-0.6B", tmp_path, python=python, fetch=False)


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("vllm", ["--max_lora_rank=64"], "has --max-lora-rank, which burnish sets itself"),
        ("mlx", ["--adapter-path", "x"], "has --adapter-path"),
        ("llama-server", ["-m", "other.gguf"], "has -m, which"),
        ("vllm", ["--port", "http"], "--port 'http', expected a number"),
        ("mlx", ["--port"], "expected a number"),
    ],
)
def test_own_options_are_refused(kind: ManagedKind, arguments: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=words):
        made(kind, "m", tmp_path, arguments=arguments)
