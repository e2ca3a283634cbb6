"""How burnish starts an engine: the command line, the environment, and the sign that it is warm.

Nothing is started here. The options are those that swapping needs (docs/engines.md).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts import llamacpp_preset
from burnish.adapters.hosts.fetch import SMALL_MODEL, small_model_path
from burnish.adapters.hosts.hub import cached, downloaded, hub_id
from burnish.adapters.hosts.model_file import is_gguf, model_file, plain_name
from burnish.adapters.hosts.vllm import SWITCH, vllm_options
from burnish.config.model_names import ManagedKind
from burnish.system.extras import how_to_install
from burnish.system.parent import for_child

logger = logging.getLogger(__name__)

NAMES: dict[ManagedKind, str] = {"vllm": "vLLM", "mlx": "MLX", "llama-server": "llama-server"}

USUAL_PLACES = ("/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin")
"""Folders of programs that a service's PATH often lacks."""

# Beside those of every child: what these engines read, but no key. An API key would lock burnish out.
_ENGINES_OWN = re.compile(
    r"(VLLM|HF|TORCH|NCCL|TRITON|MLX|METAL|MTL|XDG|CC|CXX|TOKENIZERS|SAFETENSORS|HTTPS?_PROXY|NO_PROXY)(_.*)?",
    re.I,
)
_KEYS = re.compile(r".*(KEY|TOKEN|SECRET|PASSWORD)S?")
# Of another environment's interpreter, these would load this one's packages.
_OF_THIS_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

# What burnish sets itself. Anything else in engine_args is passed on.
_OWNED: dict[ManagedKind, tuple[str, ...]] = {
    "vllm": (
        "--model", "--served-model-name", "--host", "--uds", "--api-key", "--root-path",
        "--enable-lora", "--no-enable-lora", "--max-loras", "--max-lora-rank",
    ),
    "mlx": ("--model", "--host", "--adapter-path"),
    "llama-server": (
        "-m", "--model", "-a", "--alias", "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file",
        "--host", "--api-key", "--api-key-file", "--api-prefix", "--lora", "--lora-scaled", "--cache-ram", "-cram",
        "--models-dir", "--models-preset", "--models-max", "--no-models-autoload", "--models-autoload",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """An engine to start."""

    name: str
    """Its name for users."""
    program: tuple[str, ...]
    """The command line without the port."""
    environment: Mapping[str, str] = field(repr=False)
    model: str
    """The base model's name in the engine."""
    weights: Path
    health_path: str
    """A path that answers once it runs."""
    fixed_port: int | None = None
    """Named by the user; None: any free one."""
    preset: Path | None = None
    """llama-server: the file for --models-preset, and its content at the start."""
    preset_text: str = ""
    api_key: str | None = field(default=None, repr=False)
    """What requests must send, so that no other program or web page reaches it; None: the engine knows no keys."""

    def command(self, port: int) -> list[str]:
        return [*self.program, "--port", str(port)]

    def is_warm(self, answer: Any) -> bool:
        """Read an answer of ``health_path``: is the model loaded? Raises EngineError if it can't be loaded."""
        if self.preset is None:
            return True
        try:
            status = next(card["status"] for card in answer["data"] if card["id"] == self.model)
        except (KeyError, TypeError, StopIteration):
            return False
        if status.get("failed"):
            raise EngineError(f"{self.name} can't load {self.weights}")
        return bool(status.get("value") == "loaded")


def recipe_for(
    kind: ManagedKind,
    model: str | None,
    *,
    rank: int,
    sleeps: bool,
    state_dir: Path,
    python: Path | None = None,
    arguments: Sequence[str] = (),
    fetch: bool = True,
) -> Recipe:
    """Return how to start an engine with a model.

    ``rank``: the largest of adapters; ``sleeps``: vLLM gives its GPU back while the trainer runs; ``python``: the
    interpreter of the engine's environment, None = this one; ``arguments``: further options; ``fetch``: download a
    model on the hub that isn't here. Raises EngineError if the program or the model is missing, or an option is
    burnish's own.
    """
    fixed_port, arguments = _options(kind, arguments)
    if kind == "llama-server":
        return _llama_server(model, state_dir, fixed_port, arguments, fetch=fetch)
    name, directory = _directory(kind, model)
    interpreter = _interpreter(kind, python)
    weights = directory or _from_hub(name, fetch=fetch)
    environment = _environment(of_other_python=python is not None)
    local = (*arguments, "--host", "127.0.0.1", "--model", str(weights))
    if kind == "mlx":
        program = (interpreter, "-m", "mlx_lm", "server", *local, "--allowed-origins", "http://127.0.0.1")
        return Recipe(NAMES[kind], program, environment, str(weights), weights, "/health", fixed_port)
    key = secrets.token_urlsafe(32)
    environment |= {
        "VLLM_API_KEY": key,
        SWITCH: "True",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
    }
    environment |= {"VLLM_SERVER_DEV_MODE": "1"} if sleeps else {}
    program = (
        *(interpreter, "-m", "vllm.entrypoints.openai.api_server", *local, "--served-model-name", name),
        "--disable-uvicorn-access-log",
        *vllm_options(rank),
        *(("--enable-sleep-mode",) if sleeps else ()),
    )
    return Recipe(NAMES[kind], program, environment, name, weights, "/v1/models", fixed_port, api_key=key)


def _llama_server(
    model: str | None, state_dir: Path, fixed_port: int | None, arguments: Sequence[str], *, fetch: bool
) -> Recipe:
    places = [
        os.environ.get("PATH", os.defpath),
        *(str(Path(folder).expanduser()) for folder in USUAL_PLACES),
    ]
    program = shutil.which("llama-server", path=os.pathsep.join(places))
    if program is None:
        raise EngineError(
            "llama-server isn't on PATH: install llama.cpp (brew install llama.cpp, or "
            "https://github.com/ggml-org/llama.cpp/releases), or leave --engine out for the embedded llama.cpp"
        )
    name, weights = _gguf(model, fetch=fetch)
    preset, key = state_dir / "models.ini", secrets.token_urlsafe(32)
    options = (
        *("--models-preset", str(preset), "--cache-ram", "0"),
        # More than burnish ever loads. 0 means no limit, but then llama-server refuses to load a model at its start.
        *("--models-max", "32"),
        # Only warnings and errors: the log must not grow with the traffic.
        *("--log-verbosity", "2"),
    )
    return Recipe(
        "llama-server",
        (program, *options, *arguments, "--host", "127.0.0.1"),
        _environment(of_other_python=False) | {"LLAMA_API_KEY": key},
        name,
        weights,
        "/models",
        fixed_port,
        preset,
        llamacpp_preset.base_alone(name, weights),
        key,
    )


def _options(kind: ManagedKind, arguments: Sequence[str]) -> tuple[int | None, list[str]]:
    """Take the port out of the user's options. Raises EngineError for an option that is burnish's own."""
    port, options, queue = None, [], list(arguments)
    while queue:
        argument = queue.pop(0)
        option, _, setting = argument.partition("=")
        if kind == "vllm":
            option = option.replace("_", "-")
        if option in _OWNED[kind]:
            raise EngineError(f"engine_args has {option}, which burnish sets itself: leave it out")
        if option != "--port":
            options.append(argument)
            continue
        setting = setting or (queue.pop(0) if queue else "")
        if not setting.isdecimal():
            raise EngineError(
                f"engine_args has --port {setting!r}, expected a number: leave it out for a free port"
            )
        port = int(setting)
    return port, options


def _interpreter(kind: ManagedKind, python: Path | None) -> str:
    """Return the interpreter that has the engine. Raises EngineError, which says how to install it."""
    module, name = {"vllm": "vllm", "mlx": "mlx_lm"}[kind], NAMES[kind]
    if python is None:
        if importlib.util.find_spec(module) is None:
            raise EngineError(
                f"{name} isn't installed here. Run: {how_to_install(kind)}; or install it into an environment of its "
                "own and set engine_python (--engine-python) to that one's python"
            )
        return sys.executable
    if not os.access(python, os.X_OK) or python.is_dir():
        raise EngineError(f"engine_python {python} isn't a program: name the python of {name}'s environment")
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        process = subprocess.run([python, "-c", look], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(
            f"engine_python {python} doesn't run ({error}): name the python of {name}"
        ) from error
    if process.returncode:
        package = {"vllm": "vllm", "mlx": "mlx-lm"}[kind]
        raise EngineError(f"{name} isn't installed for {python}. Run: {python} -m pip install {package}")
    return str(python)


def _directory(kind: ManagedKind, model: str | None) -> tuple[str, Path | None]:
    """Return a model's name and its Hugging Face directory; None: it is on the hub. Raises EngineError."""
    engine = NAMES[kind]
    expected = "expected a Hugging Face directory, or a model on the hub such as Qwen/Qwen3-0.6B"
    if model is None:
        raise EngineError(f"{engine} needs a model (--model): {expected}")
    path = Path(model).expanduser().absolute()
    if path.is_file():
        hint = "; for a GGUF take --engine llama-server" if is_gguf(path) else ""
        raise EngineError(f"{engine} can't serve the file {path}, {expected}{hint}")
    if path.is_dir():
        if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
            raise EngineError(f"{path} has no config.json with *.safetensors beside it, {expected}")
        return plain_name(path.name), path
    if not hub_id(model):
        raise EngineError(f"the model {model} doesn't exist, {expected}")
    return model, None


def _from_hub(model: str, *, fetch: bool) -> Path:
    if not fetch and not cached(model):
        raise EngineError(f"{model} isn't downloaded yet: `burnish up` does it")
    return downloaded(model)


def _gguf(model: str | None, *, fetch: bool) -> tuple[str, Path]:
    """Return a model's name and its file. Raises EngineError."""
    if model and (path := Path(model).expanduser().absolute()).is_dir():
        raise EngineError(
            f"llama-server can't serve the directory {path}, expected a GGUF file; for a Hugging Face directory take "
            "--engine vllm or mlx"
        )
    if model is None and not fetch:
        return SMALL_MODEL, small_model_path()
    gguf = model_file(model)
    if gguf.left_out:
        logger.warning("%s: llama-server gets the model without its %s", model, ", ".join(gguf.left_out))
    return gguf.name, gguf.path


def _environment(*, of_other_python: bool) -> dict[str, str]:
    own = {name: setting for name, setting in os.environ.items() if _ENGINES_OWN.fullmatch(name)}
    dropped = _OF_THIS_PYTHON if of_other_python else ()
    return {
        name: setting
        for name, setting in (for_child() | own).items()
        if name not in dropped and not _KEYS.fullmatch(name)
    }
