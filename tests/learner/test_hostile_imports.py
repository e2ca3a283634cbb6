"""Adapters made to do harm: nothing in them is run, each is refused with a sentence, and a sound one still comes in."""

from __future__ import annotations

import asyncio
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tests.adapters.test_registry import raw
from tests.learner.test_foreign_engine import world
from tests.learner.test_transfer import LLAMA, import_
from tests.support.lora import write_peft
from tests.support.patience import within
from tests.support.tiny_gguf import blank, tiny_lora
from tests.support.vllm_double import Engine

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
LIMIT_S = 5.0
"""For one import; some take milliseconds."""


class Bomb:
    """Unpickling it leaves a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {FIRST: {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def gguf(*, version: int = 3, tensors: int = 0, keys: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def text(content: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(content) if length is None else length) + content


KEY = text(b"general.type")
STRING, ARRAY, BYTES_ = (struct.pack("<I", kind) for kind in (8, 9, 0))
GGUFS = {
    "no end of tensors": gguf(tensors=2**60),
    "no end of keys": gguf(keys=2**60),
    "both": gguf(tensors=2**63, keys=2**63, rest=bytes(1000)),
    "version 99": gguf(version=99),
    "a key without end": gguf(keys=1, rest=text(b"general", 2**60)),
    "a text without end": gguf(keys=1, rest=KEY + STRING + text(b"adapter", 2**63)),
    "an array without end": gguf(keys=1, rest=KEY + ARRAY + BYTES_ + struct.pack("<Q", 2**60)),
    "arrays in arrays": gguf(keys=1, rest=KEY + (ARRAY + struct.pack("<IQ", 9, 1)) * 2000),
    "a kind that is none": gguf(keys=1, rest=KEY + struct.pack("<I", 99)),
    "a tensor of exabytes": gguf(tensors=1, rest=text(b"t") + struct.pack("<IQQIQ", 2, 2**31, 2**31, 0, 0)),
    "a tensor elsewhere": gguf(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 4, 0, 2**62)),
    "dimensions without end": gguf(tensors=1, rest=text(b"t") + struct.pack("<I", 2**31)),
}
HEADERS: dict[str, tuple[Any, bytes, int | None]] = {
    "longer than the file": ({}, b"", 2**40),
    "a negative length": ({}, b"", 2**64 - 1),
    "overlapping tensors": (entry() | {f"{FIRST}x": entry()[FIRST]}, bytes(4), None),
    "beyond the file": (entry(offsets=(0, 2**40)), bytes(4), None),
    "backwards": (entry(offsets=(4, 0)), bytes(4), None),
    "negative": (entry(offsets=(-4, 0)), bytes(4), None),
    "a shape of exabytes": (entry(shape=(2**32, 2**32)), bytes(4), None),
    "a negative shape": (entry(shape=(-1,)), bytes(4), None),
    "more shape than bytes": (entry(shape=(4, 4)), bytes(4), None),
    "objects": (entry("O"), bytes(4), None),
    "a name that leads away": ({"../../../etc/passwd": entry()[FIRST]}, bytes(4), None),
}
CONFIGS: dict[str, dict[str, Any]] = {
    "alpha beyond float32": {"lora_alpha": 1e300},
    "alpha is a list": {"lora_alpha": [1]},
    "alpha is zero": {"lora_alpha": 0},
    "a rank of exabytes": {"r": 2**62},
    "a rank below zero": {"r": -4},
    "a rank that is text": {"r": "__import__('os')"},
    "a pattern that never ends": {"rank_pattern": {"([a-z_.0-9]+)*!": 4}},
    "another kind": {"peft_type": "PROMPT_TUNING"},
}
SECRET = b"\xffgeheim"
"""In a file to which adapters link; it is neither JSON nor safetensors."""


def filled(value: float | None) -> dict[str, Any]:
    """Tensors with a number that is none, or with one of another shape."""
    tensors = tiny_lora(LLAMA, 1)
    if value is None:
        tensors[FIRST] = tensors[FIRST][:, :-1].copy()
    else:
        tensors[FIRST][0, 0] = value
    return tensors


def linked(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def write_hostile(folder: Path, bomb: bytes, secret: Path) -> None:
    """Write them all into a folder; those that could run something hold the bomb."""

    def sound(name: str, **config: Any) -> Path:
        return write_peft(folder / name, tiny_lora(LLAMA, 1), **config)

    for end in ("gguf", "bin", "pt"):
        (folder / f"pickled.{end}").write_bytes(bomb)
    for name, content in GGUFS.items():
        (folder / f"{name}.gguf").write_bytes(content)
    for file in (WEIGHTS, CONFIG, "adapters.safetensors"):
        (sound(f"pickled {file}") / file).write_bytes(bomb)
        linked(sound(f"linked {file}") / file, secret)
    weights = sound("only a pickle") / WEIGHTS
    weights.rename(weights.with_name("x.bin")).write_bytes(bomb)
    for name, header in HEADERS.items():
        raw(sound(name), *header)
    for name, config in CONFIGS.items():
        sound(name, **config)
    for name, value in {"NaN": np.nan, "infinite": -np.inf, "another shape": None}.items():
        write_peft(folder / name, filled(value))
    linked(folder / "elsewhere", secret.parent)


async def test_adapters_that_are_made_to_do_harm(tmp_path: Path) -> None:
    mark, hostile, away = tmp_path / "mark", tmp_path / "hostile", tmp_path / "away"
    hostile.mkdir()
    away.mkdir()
    (away / "secret").write_bytes(SECRET)
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    mark.unlink()  # so it works
    sound = write_peft(tmp_path / "sound", tiny_lora(LLAMA, 1), auto_map={"AutoModel": "evil.Model"})
    (sound / "evil.py").write_text(f"open({str(mark)!r}, 'w')")
    (sound / "adapter_model.bin").write_bytes(bomb)
    write_hostile(hostile, bomb, away / "secret")
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        for path in hostile.iterdir():
            async with asyncio.timeout(within(LIMIT_S)):
                refused = await import_(http, path)
            assert refused.status_code == 422, path.name
            message = refused.json()["error"]["message"]
            assert "cannot be imported" in message and "geheim" not in message, path.name
        assert (await http.get("/burnish/adapters")).json()["adapters"] == []
        assert (await import_(http, sound)).status_code == 201
    registered = tmp_path / "data" / "adapters" / "v0001"
    assert {path.name for path in registered.iterdir()} == {WEIGHTS, CONFIG, "manifest.json"}
    assert not mark.exists()
    assert (away / "secret").read_bytes() == SECRET
