"""vLLM and SGLang: adapters come and go in a running server, each under a name of its own.

In SGLang a request names an adapter as "base:adapter", and every refusal is a 400.
https://docs.vllm.ai/en/stable/features/lora/#dynamically-serving-lora-adapters
https://docs.sglang.io/docs/advanced_features/lora
"""

from __future__ import annotations

import re
import shlex
from http import HTTPStatus

from burnish.adapters.errors import EngineError, EngineRefused
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.named_lora import NamedLoraHost
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion

SWITCH = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
"""The variable without which vLLM has no routes for adapters."""
# Gigabytes move, after the requests that run have ended.
SLEEP_TIMEOUT_S = 300.0
# The answer for a missing route: FastAPI's own words, or the same in vLLM's envelope.
_NO_ROUTE = ("Not Found", "{'detail': 'Not Found'}")
# The values that vLLM's --max-lora-rank accepts.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
# An SGLang without --enable-lora answers with an error that names the option, or does not have the route.
_DISABLED = re.compile(r"enable[-_]lora|lora is not enabled|^(\{'detail': ')?not found('\})?$", re.I)
_NO_DIRECTORY = re.compile(r"no such file|not found|does not exist|can't find|repo id|repository", re.I)


def vllm_options(rank: int) -> tuple[str, ...]:
    """Return the options with which vLLM takes adapters up to a rank."""
    rank = max(rank, NamedLoraHost.limits.max_rank)
    allowed = next((limit for limit in _RANKS if limit >= rank), rank)
    # By default a batch has one adapter only: new requests would wait for the last stream of an older version.
    loras = NamedLoraHost.limits.max_resident - 1
    return ("--enable-lora", "--max-loras", str(loras), "--max-lora-rank", str(allowed))


class VllmHost(NamedLoraHost):
    """AdapterHost over a running vLLM."""

    engine = "vLLM"
    remedy = (
        "vLLM ignores the adapters of some model families without an error, above all of multimodal ones "
        "(…ForConditionalGeneration): serve the family's text-only model, update vLLM, or serve the model by llama.cpp"
    )
    load_route = "/v1/load_lora_adapter"
    unload_route = "/v1/unload_lora_adapter"

    def command(self, rank: int) -> str:
        return (
            f"{SWITCH}=True vllm serve MODEL --served-model-name {shlex.quote(self.base_model)} "
            f"{shlex.join(vllm_options(rank))}"
        )

    async def sleeping(self) -> bool | None:
        """Ask vLLM, which has this route only with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1."""
        try:
            return bool((await self._api.ask("GET", "/is_sleeping"))["is_sleeping"])
        except EngineRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        except (KeyError, TypeError):
            return None

    async def sleep(self) -> None:
        """Move the weights to main memory; without mode=wait, it would cut the requests of others."""
        await self._api.ask("POST", "/sleep?level=1&mode=wait", timeout_s=SLEEP_TIMEOUT_S)

    async def wake(self) -> None:
        await self._api.ask("POST", "/wake_up", timeout_s=SLEEP_TIMEOUT_S)

    def disabled(self, error: EngineRefused) -> bool:
        """Without the variable, the route is missing."""
        return error.status == HTTPStatus.NOT_FOUND and error.detail.strip() in _NO_ROUTE

    def explained(self, error: EngineRefused, version: AdapterVersion, rank: int) -> Exception:
        if error.status == HTTPStatus.NOT_FOUND and not self.disabled(error):
            return self.unseen(version)
        return super().explained(error, version, rank)


class SglangHost(NamedLoraHost):
    """AdapterHost over a running SGLang."""

    engine = "SGLang"
    remedy = "Start it with --lora-target-modules all, else update SGLang, or serve the model by llama.cpp"
    load_route = "/load_lora_adapter"
    unload_route = "/unload_lora_adapter"

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        if ":" in self.base_model:
            raise EngineError(
                f"SGLang takes the part after a colon for an adapter, but the model is called {self.base_model}; start "
                f"it with --served-model-name {self.base_model.replace(':', '-')}, and set model to that"
            )
        return await super().load(version)

    def command(self, rank: int) -> str:
        return (
            "python -m sglang.launch_server --model-path MODEL "
            f"--served-model-name {shlex.quote(self.base_model)} "
            f"--enable-lora --max-lora-rank {max(rank, self.limits.max_rank)} --lora-target-modules all"
        )

    def _endpoint(self, name: str, number: int) -> Endpoint:
        """Name an adapter as "base:adapter"; its name alone would be answered by the base model."""
        return super()._endpoint(name if number == BASE_VERSION else f"{self.base_model}:{name}", number)

    def disabled(self, error: EngineRefused) -> bool:
        """Without the option, the route is missing or its answer names the option."""
        return bool(_DISABLED.search(error.detail))

    def explained(self, error: EngineRefused, version: AdapterVersion, rank: int) -> Exception:
        explained = super().explained(error, version, rank)
        # The error holds the path, which may hold any word.
        words = error.detail.replace(str(version.path.absolute()), "")
        if explained is error and _NO_DIRECTORY.search(words):
            return self.unseen(version)
        return explained
