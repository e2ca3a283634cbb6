"""SGLang: like vLLM, but a request names an adapter as "base:adapter", and every refusal is a 400.

https://docs.sglang.io/docs/advanced_features/lora
"""

from __future__ import annotations

import re
import shlex

from burnish.adapters.errors import EngineError, EngineRefused
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.named_lora import NamedLoraHost
from burnish.adapters.manifest import AdapterVersion

# A server without --enable-lora answers with an error that names the option, or does not have the route.
_DISABLED = re.compile(r"enable[-_]lora|lora is not enabled|^(\{'detail': ')?not found('\})?$", re.I)
_NO_DIRECTORY = re.compile(r"no such file|not found|does not exist|can't find|repo id|repository", re.I)


class SglangHost(NamedLoraHost):
    """AdapterHost over a running SGLang."""

    engine = "SGLang"
    load_route = "/load_lora_adapter"
    unload_route = "/unload_lora_adapter"

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Load a version from its directory, unless the engine has it; see AdapterHost.load."""
        if ":" in self.base_model:
            raise EngineError(
                f"SGLang takes the part after a colon for an adapter, but the model is called {self.base_model}; start "
                f"it with --served-model-name {self.base_model.replace(':', '-')}, and set model to that"
            )
        return await super().load(version)

    def command(self, rank: int) -> str:
        """Return the command line that starts SGLang so that it takes adapters of this rank."""
        return (
            "python -m sglang.launch_server --model-path MODEL "
            f"--served-model-name {shlex.quote(self.base_model)} "
            f"--enable-lora --max-lora-rank {max(rank, self._limits.max_rank)} --lora-target-modules all"
        )

    def request_model(self, name: str) -> str:
        """Return "base:adapter"; the adapter's name alone would be answered by the base model."""
        return f"{self.base_model}:{name}"

    def disabled(self, error: EngineRefused) -> bool:
        """Without the option, the route is missing or its answer names the option."""
        return bool(_DISABLED.search(error.detail))

    def explained(self, error: EngineRefused, version: AdapterVersion, rank: int) -> Exception:
        """Turn SGLang's refusal to load into an error that says what to do."""
        explained = super().explained(error, version, rank)
        # The error holds the path, which may hold any word.
        words = error.detail.replace(str(version.path.absolute()), "")
        if explained is error and _NO_DIRECTORY.search(words):
            return self.unseen(version)
        return explained
