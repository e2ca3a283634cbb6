"""Find out which engine answers at a URL, what it serves, and where the base weights are."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from burnish.adapters.errors import EngineError, EngineRefused
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.fetch import file_digest
from burnish.adapters.hosts.hub import hub_id

Kind = Literal["vllm", "sglang", "ollama", "llamacpp", "mlx", "lmstudio", "other"]

# Engines list their models in milliseconds; a slower server isn't an engine, or isn't up yet.
LOOK_TIMEOUT_S = 3.0
# In this order: vLLM; llama.cpp and MLX; Ollama; SGLang; LM Studio.
USUAL_PORTS = (8000, 8080, 11434, 30000, 1234)
NAMES: dict[Kind, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "ollama": "Ollama",
    "llamacpp": "llama.cpp",
    "mlx": "MLX",
    "lmstudio": "LM Studio",
}

LM_STUDIO = (
    "LM Studio takes no adapters. Let burnish learn with its own engine (`burnish up --model FILE.gguf`; LM Studio "
    "keeps its files in ~/.lmstudio/models), then give LM Studio what was learnt as a model of its own: "
    "`burnish adapters export N NAME.gguf --as merged-gguf` and `lms import NAME.gguf`"
)
"""What to do with LM Studio."""

_OWNERS: dict[str, Kind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "library": "ollama"}
_FROM = re.compile(r"^FROM (/.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Detected:
    kind: Kind
    """ "other": an OpenAI-compatible server that burnish doesn't know."""
    model: str
    """The model to improve: the one asked for, else the first in the list."""
    weights: Path | None
    """The base weights that the engine names, if they are on this machine."""
    hub_id: str | None = None
    """The model on the Hugging Face hub that the engine names instead of a path."""

    @property
    def takes_versions(self) -> bool:
        """Whether burnish can swap versions in it."""
        return self.kind not in ("lmstudio", "other")


async def detect(api: EngineApi, model: str | None = None) -> Detected:
    """Ask an engine for its kind; ``model`` chooses among several models. Raises EngineError if no engine answers."""
    if await _answers(api, "/api/version"):
        return await _ollama(api, model)
    listing = await api.ask("GET", "/v1/models", timeout_s=LOOK_TIMEOUT_S)
    if "owned_by" not in str(listing) and await _takes_adapters(api):
        return _mlx(api, listing, model)
    try:
        models = {str(card["id"]): card for card in listing["data"] if not card.get("parent")}
    except (TypeError, KeyError, AttributeError) as error:
        raise EngineError(f"{api.url} does not list its models at /v1/models") from error
    card = _choose(models, model, api.url)
    kind = _OWNERS.get(str(card.get("owned_by")), "other")
    name = str(card["id"])
    if kind == "other" and (lm_studio := await _lm_studio(api, model)):
        return lm_studio
    if kind == "llamacpp":
        return Detected(kind, name, await _llamacpp_weights(api, card))
    root = card.get("root")
    weights = _existing(root)
    return Detected(kind, name, weights, None if weights else hub_id(str(root)))


def weights_digest(weights: Path) -> str:
    """Return "sha256:<hex>" of a GGUF file, or of all safetensors of a Hugging Face directory. Raises EngineError."""
    if weights.is_file():
        return _digest(weights, weights.stat().st_mtime_ns)
    files = sorted(weights.glob("*.safetensors"))
    if not files:
        raise EngineError(
            f"{weights} has no *.safetensors; expected the GGUF file or Hugging Face directory that the engine serves"
        )
    content = repr([(path.name, _digest(path, path.stat().st_mtime_ns)) for path in files])
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


# Gigabytes are read once, not once for each replica and each question.
@lru_cache(maxsize=256)
def _digest(file: Path, _changed_ns: int) -> str:
    return file_digest(file)


async def _ollama(api: EngineApi, model: str | None) -> Detected:
    tags = await api.ask("GET", "/api/tags", timeout_s=LOOK_TIMEOUT_S)
    models = {str(card["name"]).removesuffix(":latest"): card for card in tags["models"]}
    card = _choose(models, model.removesuffix(":latest") if model else None, api.url)
    name = str(card["name"]).removesuffix(":latest")
    description = await api.ask("POST", "/api/show", {"model": name}, timeout_s=LOOK_TIMEOUT_S)
    match = _FROM.search(str(description.get("modelfile", "")))
    return Detected("ollama", name, _existing(match[1] if match else None))


async def _takes_adapters(api: EngineApi) -> bool:
    """Recognise mlx_lm.server, which doesn't name itself, by its error for this request."""
    try:
        await api.ask("POST", "/v1/completions", {"adapters": 0}, timeout_s=LOOK_TIMEOUT_S)
    except EngineRefused as error:
        return "adapter must be" in error.detail
    except EngineError:
        return False
    return False


def _mlx(api: EngineApi, listing: Any, model: str | None) -> Detected:
    """Find the model's directory in the listing, which holds all of Hugging Face's cache, too.

    Without such a cache, it lists nothing, with status 200.
    """
    cards = listing["data"] if isinstance(listing, dict) else []
    directories = [directory for directory in (_existing(card["id"]) for card in cards) if directory]
    if model and (directory := _existing(model)):
        directories = [directory.resolve()]
    if not directories or (model and not _existing(model)):
        raise EngineError(
            f"{api.url} is mlx_lm.server, but doesn't list the directory of its model; start it with "
            "mlx_lm.server --model /path/to/directory, and set model to that path"
        )
    return Detected("mlx", str(directories[0]), directories[0])


async def _lm_studio(api: EngineApi, model: str | None) -> Detected | None:
    """Recognise LM Studio by its own list, which has every downloaded model; one that is loaded goes first.

    It answers 200 to any path, so the content counts.
    """
    try:
        listing = await api.ask("GET", "/api/v0/models", timeout_s=LOOK_TIMEOUT_S)
        cards = [card for card in listing["data"] if card["compatibility_type"]]
        talking = [card for card in cards if card["type"] != "embeddings"]
        talking.sort(key=lambda card: card["state"] != "loaded")
        models = {str(card["id"]): card for card in talking}
    except (EngineError, TypeError, KeyError):
        return None
    return Detected("lmstudio", str(_choose(models, model, api.url)["id"]), None)


async def _llamacpp_weights(api: EngineApi, card: dict[str, Any]) -> Path | None:
    """Ask a router for the arguments of the model, and a plain server for its model's path."""
    arguments = card["status"].get("args", []) if isinstance(card.get("status"), dict) else []
    if "--model" in arguments[:-1]:
        return _existing(arguments[arguments.index("--model") + 1])
    try:
        props = await api.ask("GET", "/props", timeout_s=LOOK_TIMEOUT_S)
    except EngineError:
        return None
    return _existing(props.get("model_path")) if isinstance(props, dict) else None


async def _answers(api: EngineApi, path: str) -> bool:
    try:
        answer = await api.ask("GET", path, timeout_s=LOOK_TIMEOUT_S)
    except EngineError:
        return False
    return isinstance(answer, dict) and "version" in answer


def _choose(models: dict[str, dict[str, Any]], model: str | None, url: str) -> dict[str, Any]:
    own = {name: card for name, card in models.items() if "@v" not in name and "-burnish:" not in name}
    if not own:
        raise EngineError(f"{url} serves no model yet")
    if model is None:
        return next(iter(own.values()))
    if model not in own:
        raise EngineError(f"{url} serves no model {model!r}; it has {', '.join(sorted(own))}")
    return own[model]


def _existing(path: object) -> Path | None:
    local_path = Path(str(path)) if path else None
    return local_path if local_path and local_path.is_absolute() and local_path.exists() else None
