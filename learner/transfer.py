"""Imports adapters as versions; exports versions as adapters (PEFT, GGUF, MLX) or merged with the base model."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish.adapters.convert import gguf, gguf_layout, mlx
from burnish.adapters.convert.peft import PeftAdapter, read_peft, renamed, write_peft
from burnish.adapters.errors import AdapterError, UnknownVersion
from burnish.adapters.hosts.converted import check_base
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Provenance
from burnish.adapters.merging import Merged, ensure_merged
from burnish.adapters.registry import Registry, version_label
from burnish.adapters.weights_file import CONFIG, MAX_CONFIG_BYTES, MAX_FILE_BYTES, WEIGHTS
from burnish.proxy.http.errors import Conflict, NotFound, Unprocessable
from burnish.system.regular import check_regular
from burnish.system.threads import in_one_thread

Format = Literal["peft", "gguf", "mlx", "merged-gguf", "merged-hf"]

MAX_RANK = 256
"""The highest rank of any engine that takes adapters."""
FLOAT_BYTES = 4

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Transfer:
    registry: Registry
    base_model: str
    base_digest: str
    base_weights: Path
    weights_cache: Path

    def import_adapter(self, path: Path, reason: str) -> AdapterVersion:
        """Register an adapter (PEFT, GGUF or MLX) as a candidate. Blocks: call it in a thread.

        It must fit the shapes of the base model. Raises NotFound (no such path), Unprocessable (no adapter, damaged,
        for another base), OSError.
        """
        try:
            if not path.exists():
                raise NotFound(f"there is no {path} on the machine where burnish runs", param="path")
            self._check_files(path)
        except (OSError, AdapterError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            if isinstance(error, FileNotFoundError):
                why = f"it has no {Path(error.filename).name}{_instead(path)}"
            raise Unprocessable(f"{path} cannot be imported: {why}", param="path") from error
        try:
            with tempfile.TemporaryDirectory(prefix="burnish-import-") as folder:
                version = self.registry.register(
                    self._as_peft(path, Path(folder) / "adapter"),
                    Provenance(
                        base_model=self.base_model,
                        base_digest=self.base_digest,
                        parent=BASE_VERSION,
                        run_id="import",
                        feedback_ids=(),
                        objective="none",
                        hyperparameters={},
                        metrics={},
                    ),
                )
        except AdapterError as error:
            raise Unprocessable(f"{path} cannot be imported: {error}", param="path") from error
        # A person vouches for it, not the gate, so the next start must not reject it.
        self.registry.record(version.number, "candidate", reason, awaits="promotion")
        return self.registry.get(version.number)

    async def export_version(self, number: int, form: Format, target: Path) -> Merged | None:
        """Write a version as a new file (gguf, merged-gguf) or directory (peft, mlx, merged-hf).

        Raises NotFound, Conflict (the target exists or can't be written, or the format can't express the version).
        """
        try:
            version = await in_one_thread(self._exportable, number, target)
            if form in ("merged-gguf", "merged-hf"):
                base = self._gguf(form) if form == "merged-gguf" else self._directory(form)
                check_base(version, self.base_digest, self.base_model)
                return await ensure_merged(version, base, target)
            await in_one_thread(self._write, version, form, target)
        except UnknownVersion as error:
            raise NotFound(str(error), code="unknown_version") from error
        except AdapterError as error:
            raise Conflict(
                f"{version_label(number)} cannot be exported as {form}: {error}", code="not_exportable"
            ) from error
        except OSError as error:
            raise Conflict(f"cannot write {target}: {error.strerror or error}", param="path") from error
        return None

    def _exportable(self, number: int, target: Path) -> AdapterVersion:
        """Return a version whose files are whole, after a look at the target."""
        if target.exists():
            raise Conflict(f"{target} exists already: name a path that doesn't", code="exists", param="path")
        if not target.parent.is_dir():
            raise NotFound(f"there is no directory {target.parent}", param="path")
        version = self.registry.get(number)
        self.registry.verify(number)
        return version

    def _check_files(self, path: Path) -> None:
        """Look at all files before one is opened. Raises OSError."""
        if not path.is_dir():
            check_regular(path, self._largest())
            return
        check_regular(path / CONFIG, MAX_CONFIG_BYTES)
        check_regular(path / (mlx.WEIGHTS if (path / mlx.WEIGHTS).exists() else WEIGHTS), self._largest())

    def _largest(self) -> int:
        """Return the bytes of the largest LoRA that the base model allows: every weight, at the highest rank."""
        read = gguf_layout.read_base if self.base_weights.is_file() else mlx.read_base
        shapes = read(self.base_weights).shapes
        # A quantised weight shows only one of its two sides.
        numbers = sum(2 * max(shape, default=0) for shape in shapes.values()) * MAX_RANK
        return min(MAX_FILE_BYTES, MAX_CONFIG_BYTES + FLOAT_BYTES * numbers)

    def _as_peft(self, path: Path, target: Path) -> Path:
        if path.is_file():
            write_peft(
                gguf.read_lora(path, gguf_layout.read_base(self._gguf("gguf"))), target, self.base_model
            )
        elif (path / mlx.WEIGHTS).exists():
            write_peft(self._named(mlx.from_mlx(path)), target, self.base_model)
        else:
            # Engines ignore alpha_pattern and rank_pattern, so the version has none.
            write_peft(self._named(read_peft(path).of_one_rank()), target, self.base_model)
        self._check_fitting(target)
        return target

    def _named(self, adapter: PeftAdapter) -> PeftAdapter:
        """Name the modules as the checkpoint does that vLLM and SGLang load: they ignore other names in silence."""
        if self.base_weights.is_file():
            return adapter
        return renamed(adapter, mlx.read_base(self.base_weights).shapes)

    def _check_fitting(self, adapter: Path) -> None:
        """Convert it for the base, only to find wrong shapes before an engine does."""
        with tempfile.TemporaryDirectory(prefix="burnish-import-") as folder:
            if self.base_weights.is_file():
                gguf.to_gguf(adapter, gguf_layout.read_base(self.base_weights), Path(folder) / "adapter.gguf")
            else:
                mlx.to_mlx(adapter, mlx.read_base(self.base_weights), Path(folder) / "adapter")

    def _write(self, version: AdapterVersion, form: Format, target: Path) -> None:
        if form == "gguf":
            gguf.to_gguf(version.path, gguf_layout.read_base(self._gguf(form)), target)
        elif form == "mlx":
            mlx.to_mlx(version.path, mlx.read_base(self._directory(form)), target)
        else:
            write_peft(read_peft(version.path), target, version.manifest.base_model)

    def _gguf(self, form: Format) -> Path:
        if self.base_weights.is_file():
            return self.base_weights
        raise Conflict(
            f"the format {form} needs a GGUF base model, and {self.base_weights} is not a GGUF file: "
            "set train.base to one",
            code="no_gguf_base",
        )

    def _directory(self, form: Format) -> Path:
        """Return the base model as a Hugging Face directory: itself, or the one that training made from the GGUF."""
        if self.base_weights.is_dir():
            return self.base_weights
        match = _DIGEST.fullmatch(self.base_digest)
        dequantised = self.weights_cache / (match[1] if match else "none")
        if dequantised.is_dir():
            return dequantised
        raise Conflict(
            f"the format {form} needs the base model as a Hugging Face directory, and {self.base_weights} is a GGUF "
            "file: train once (that makes the directory), or set train.base to one",
            code="no_directory_base",
        )


def _instead(folder: Path) -> str:
    """Return what a folder without the expected files has, and what to do with it."""
    if checkpoints := sorted(folder.glob(f"*_{mlx.WEIGHTS}")):
        return f"; rename the checkpoint that you want, such as {checkpoints[-1].name}, to {mlx.WEIGHTS}"
    pickled = Path(WEIGHTS).with_suffix(".bin").name
    if (folder / pickled).exists():
        return (
            f", only {pickled}, which could run code; save it as safetensors (save_pretrained of peft does)"
        )
    return f"; expected {CONFIG}, and {WEIGHTS} (PEFT) or {mlx.WEIGHTS} (MLX)"
