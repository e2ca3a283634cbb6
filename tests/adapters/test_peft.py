"""PEFT directories: what is read, and what is refused before any engine could serve it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from burnish.adapters.convert.peft import Lora, PeftAdapter, read_peft, write_peft
from burnish.adapters.errors import CorruptAdapter, IncompatibleAdapter
from tests.adapters.engines import full_disk
from tests.adapters.test_registry import raw
from tests.support import lora as support

Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.1.mlp.down_proj"
PREFIX = "base_model.model."
Q_A, Q_B = (f"{PREFIX}{Q}.lora_{half}.weight" for half in "AB")
Tensors = dict[str, NDArray[np.float32]]


def tensors(q: int = 2, down: int = 2) -> Tensors:
    """Two modules of width 6 and these ranks, filled with distinct numbers."""
    made: Tensors = {}
    for module, rank in ((Q, q), (DOWN, down)):
        numbers = np.arange(rank * 6, dtype=np.float32)
        made[f"{PREFIX}{module}.lora_A.weight"] = numbers.reshape(rank, 6)
        made[f"{PREFIX}{module}.lora_B.weight"] = -numbers.reshape(6, rank)
    return made


def test_a_directory_becomes_pairs(tmp_path: Path) -> None:
    adapter = read_peft(support.write_peft(tmp_path, tensors(), rank=2, lora_alpha=6))
    assert (adapter.alpha, adapter.rank, list(adapter.pairs)) == (6, 2, [Q, DOWN])
    np.testing.assert_array_equal(adapter.pairs[Q].a, tensors()[Q_A])
    np.testing.assert_array_equal(adapter.pairs[Q].b, tensors()[Q_B])


def test_a_rank_pattern_gives_modules_their_own_rank(tmp_path: Path) -> None:
    path = support.write_peft(tmp_path, tensors(down=3), rank=2, rank_pattern={"mlp.down_proj": 3})
    adapter = read_peft(path)
    assert {module: lora.rank for module, lora in adapter.pairs.items()} == {Q: 2, DOWN: 3}
    alike = adapter.of_one_rank()
    assert (alike.rank, {lora.rank for lora in alike.pairs.values()}) == (3, {3})
    for module in (Q, DOWN):
        assert change(alike, module) == pytest.approx(change(adapter, module))
    for pattern, reason in (("down", "expected rank 2 in both"), ("*", "isn't a regular expression")):
        support.write_peft(tmp_path, tensors(down=3), rank=2, rank_pattern={pattern: 3})
        with pytest.raises(CorruptAdapter, match=reason):
            read_peft(path)


@pytest.mark.parametrize(
    "pattern",
    ["([a-z_.0-9]+)*!", ".*" * 30 + "!", "(q|q|a)(q|q)*!", "(?:x{9}){9}{9}", "(q|k)*", "(q|q)(q|q)"],
)
def test_a_rank_pattern_that_would_never_end_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(IncompatibleAdapter, match="isn't the name of a module"):
        read_peft(support.write_peft(tmp_path, tensors(), rank=2, rank_pattern={pattern: 2}))
    long = {name.replace("mlp.down", "a" * 256): each for name, each in tensors().items()}
    with pytest.raises(IncompatibleAdapter, match="isn't part of a plain LoRA"):
        read_peft(support.write_peft(tmp_path, long, rank=2, rank_pattern={".*b.*b": 2}))


def change(adapter: PeftAdapter, module: str) -> Any:
    """Return what a module adds to its weight."""
    lora = adapter.scaled(adapter.pairs[module])
    return lora.b @ lora.a


def test_rslora_is_worked_into_alpha_where_one_alpha_can_say_it(tmp_path: Path) -> None:
    path = support.write_peft(tmp_path, tensors(q=4, down=4), lora_alpha=6, use_rslora=True)
    assert read_peft(path).alpha == 12


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        ({"alpha_pattern": {"q_proj": 64}}, (64 / 2, 6 / 8)),
        ({"alpha_pattern": {"(q_proj|k_proj)": 64, r".*\.layers\..*\.mlp.down_proj": 0}}, (64 / 2, 0)),
        ({"alpha_pattern": {"q_proj": 12, "down_proj": 12}}, (12 / 2, 12 / 8)),
        ({"use_rslora": True}, (6 / 2**0.5, 6 / 8**0.5)),
        ({"use_rslora": True, "alpha_pattern": {"down_proj": 24}}, (6 / 2**0.5, 24 / 8**0.5)),
        ({"lora_alpha": 0, "alpha_pattern": {"down_proj": 4}}, (0, 4 / 8)),
    ],
    ids=["plain", "choices", "all", "rslora", "both", "none but one"],
)
def test_an_alpha_of_single_modules_is_worked_into_their_weights(
    tmp_path: Path, config: dict[str, Any], scales: tuple[float, float]
) -> None:
    given = tensors(down=8)
    ranks = {r"(?:up_proj|down_proj)$": 8}
    fields: dict[str, Any] = {"lora_alpha": 6, "rank_pattern": ranks} | config
    path = support.write_peft(tmp_path, given, rank=2, **fields)
    adapter = read_peft(path)
    for module, scale in zip((Q, DOWN), scales, strict=True):
        a, b = (given[f"{PREFIX}{module}.lora_{half}.weight"] for half in "AB")
        assert change(adapter, module) == pytest.approx(scale * (b @ a), rel=1e-6)
        assert change(adapter.of_one_rank(), module) == pytest.approx(scale * (b @ a), rel=1e-6)


def test_an_alpha_that_makes_a_weight_infinite_is_refused(tmp_path: Path) -> None:
    path = support.write_peft(
        tmp_path, tensors(), rank=2, lora_alpha=1e-30, alpha_pattern={"down_proj": 1e30}
    )
    with pytest.raises(CorruptAdapter, match="infinite"):
        read_peft(path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"alpha_pattern": {"(q|(k|v))_proj": 8}}, "one choice among 8 names"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"lora_bias": True}, "lora_bias"),
        ({"peft_type": "IA3"}, "IA3"),
    ],
)
def test_what_other_formats_lack_is_refused(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleAdapter, match=words):
        read_peft(support.write_peft(tmp_path, tensors(), rank=2, **config))


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({f"{PREFIX}lm_head.weight": np.ones((4, 6))}, IncompatibleAdapter),
        ({f"{PREFIX}model.embed_tokens.lora_embedding_A": np.ones((4, 6))}, IncompatibleAdapter),
        ({f"{PREFIX}{Q}.lora_magnitude_vector": np.ones(6)}, IncompatibleAdapter),
        ({Q_A.replace("q_proj", "k_proj"): np.ones((2, 6))}, CorruptAdapter),
        ({Q_A: np.ones((3, 6))}, CorruptAdapter),
        *(({Q_B: np.full((6, 2), value)}, CorruptAdapter) for value in (np.nan, np.inf, -np.inf)),
    ],
    ids=["whole weight", "embedding", "magnitude", "half a pair", "rank", "NaN", "inf", "-inf"],
)
def test_no_tensor_is_dropped_silently(more: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    others = {name: np.asarray(each, np.float32) for name, each in more.items()}
    with pytest.raises(error):
        read_peft(support.write_peft(tmp_path, tensors() | others, rank=2))


def test_torn_and_empty_adapters_are_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptAdapter, match="no tensors"):
        read_peft(support.write_peft(tmp_path, {}, rank=2))
    weights = support.write_peft(tmp_path, tensors(), rank=2) / "adapter_model.safetensors"
    whole = weights.read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        weights.write_bytes(whole[:size])
        with pytest.raises(CorruptAdapter, match="missing or damaged"):
            read_peft(tmp_path)
    weights.write_bytes(whole)
    for config in ("", "[]", "{}", '{"r": 0, "lora_alpha": 1}', '{"r": 4, "lora_alpha": NaN}'):
        (tmp_path / "adapter_config.json").write_text(config)
        with pytest.raises(CorruptAdapter):
            read_peft(tmp_path)


def test_half_precision_is_widened_exactly(tmp_path: Path) -> None:
    a = (np.arange(2 * 6, dtype=np.uint32) % 97 + 0x3F80).astype("<u2").reshape(2, 6)  # bfloat16 bits
    b = np.linspace(-1, 1, 6 * 2).astype("<f2").reshape(6, 2)
    header = {
        Q_A: {"dtype": "BF16", "shape": [2, 6], "data_offsets": [0, a.nbytes]},
        Q_B: {"dtype": "F16", "shape": [6, 2], "data_offsets": [a.nbytes, a.nbytes + b.nbytes]},
    }
    raw(support.write_peft(tmp_path, tensors(), rank=2), header, a.tobytes() + b.tobytes())
    pair = read_peft(tmp_path).pairs[Q]
    np.testing.assert_array_equal(pair.a.view(np.uint32), a.astype(np.uint32) << 16)
    np.testing.assert_array_equal(pair.b, b.astype(np.float32))


def test_a_directory_is_written_whole_and_private_or_not_at_all(tmp_path: Path) -> None:
    adapter, target = PeftAdapter(1.0, {Q: Lora(*[np.ones((4, 4), np.float32)] * 2)}), tmp_path / "adapter"
    wide = {Q: Lora(np.ones((4, 5000), np.float32), np.ones((5000, 4), np.float32))}
    with full_disk(), pytest.raises(OSError, match="too large"):
        write_peft(PeftAdapter(1.0, wide), target, "a-model")
    assert list(tmp_path.iterdir()) == []
    write_peft(adapter, target, "a-model")
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o600}
    assert target.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError, match="exists"):
        write_peft(adapter, target, "a-model")
