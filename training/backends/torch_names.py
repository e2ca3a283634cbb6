"""Names of modules: a …ForCausalLM may be made of the checkpoint of a …ForConditionalGeneration, which has others.

A version has those of the checkpoint: vLLM and SGLang load both, and ignore names that they don't know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError

from burnish.adapters.convert.mlx import read_base
from burnish.adapters.convert.peft import names_in, read_peft, renamed, write_peft
from burnish.adapters.errors import AdapterError
from burnish.adapters.weights_file import CONFIG, WEIGHTS, tensors_in
from burnish.training.errors import JobError

PREFIX = "base_model.model."


def stored_names(modules: Iterable[str], weights: Path) -> dict[str, str]:
    """Return how the checkpoint in ``weights`` names modules of the loaded model. Raises JobError."""
    try:
        return names_in(modules, read_base(weights).shapes)
    except AdapterError as error:
        raise JobError(f"cannot train {weights}: {error}") from error


@contextmanager
def loadable(adapter: Path, modules: Collection[str]) -> Iterator[Path]:
    """Yield an adapter in which modules have the names of the loaded model. Raises JobError.

    Insist on safetensors: peft would otherwise fall back to a pickle.
    """
    for name in (CONFIG, WEIGHTS):
        if not (adapter / name).is_file():
            raise JobError(f"{adapter} isn't an adapter: {name} is missing")
    with TemporaryDirectory(prefix="burnish-names-") as folder:
        path = adapter
        try:
            names = {tensor.name.partition(".lora_")[0] for tensor in tensors_in(adapter / WEIGHTS)}
            if not {name.removeprefix(PREFIX) for name in names} <= set(modules):
                path = Path(folder) / "adapter"
                write_peft(renamed(read_peft(adapter), modules), path, "")
        except (AdapterError, OSError, ValueError, LookupError, SafetensorError) as error:
            raise JobError(f"cannot load the adapter {adapter}: {error}") from error
        yield path
