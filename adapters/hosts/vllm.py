"""vLLM: adapters come and go in a running server, each under a name of its own.

https://docs.vllm.ai/en/stable/features/lora/#dynamically-serving-lora-adapters
"""

from __future__ import annotations

import shlex
from http import HTTPStatus

from burnish.adapters.errors import EngineRefused
from burnish.adapters.hosts.named_lora import NamedLoraHost
from burnish.adapters.manifest import AdapterVersion

# Gigabytes move, after the requests that run have ended.
SLEEP_TIMEOUT_S = 300.0
# The answer for a missing route: FastAPI's own words, or the same in vLLM's envelope.
_NO_ROUTE = ("Not Found", "{'detail': 'Not Found'}")


class VllmHost(NamedLoraHost):
    """AdapterHost over a running vLLM."""

    engine = "vLLM"
    load_route = "/v1/load_lora_adapter"
    unload_route = "/v1/unload_lora_adapter"

    def command(self, rank: int) -> str:
        """Return the command line that starts vLLM so that it takes adapters of this rank."""
        rank = max(rank, self._limits.max_rank)
        # By default a batch has one adapter only: new requests would wait for the last stream of an older version.
        loras = self._limits.max_resident - 1
        return (
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL "
            f"--served-model-name {shlex.quote(self.base_model)} "
            f"--enable-lora --max-loras {loras} --max-lora-rank {_allowed(rank)}"
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
        """Move the weights back."""
        await self._api.ask("POST", "/wake_up", timeout_s=SLEEP_TIMEOUT_S)

    def disabled(self, error: EngineRefused) -> bool:
        """Without the variable, the route is missing."""
        return error.status == HTTPStatus.NOT_FOUND and error.detail.strip() in _NO_ROUTE

    def explained(self, error: EngineRefused, version: AdapterVersion, rank: int) -> Exception:
        """Turn vLLM's refusal to load into an error that says what to do."""
        if error.status == HTTPStatus.NOT_FOUND and not self.disabled(error):
            return self.unseen(version)
        return super().explained(error, version, rank)


# The values that --max-lora-rank accepts.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def _allowed(rank: int) -> int:
    return next((each for each in _RANKS if each >= rank), rank)
