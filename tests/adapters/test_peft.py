from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from burnish.adapters.convert.peft import Lora, PeftAdapter, read_peft, write_peft
from burnish.adapters.errors import CorruptAdapter, IncompatibleAdapter
from tests.support import lora as support

Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.1.mlp.down_proj"
Tensors = dict[str, NDArray[np.float32]]


def tensors(**ranks: int) -> Tensors:
    """Two modules of width 6, filled with distinct numbers."""
    made: Tensors = {}
    for module, rank in ((Q, ranks.get("q", 2)), (DOWN, ranks.get("down", 2))):
        made[f"base_model.model.{module}.lora_A.weight"] = np.arange(rank * 6, dtype=np.float32).reshape(
            rank, 6
        )
        made[f"base_model.model.{module}.lora_B.weight"] = -np.arange(6 * rank, dtype=np.float32).reshape(
            6, rank
        )
    return made


def test_a_directory_becomes_pairs(tmp_path: Path) -> None:
    adapter = read_peft(support.write_peft(tmp_path, tensors(), rank=2, lora_alpha=6))
    assert (adapter.alpha, adapter.rank, list(adapter.pairs)) == (6, 2, [Q, DOWN])
    np.testing.assert_array_equal(adapter.pairs[Q].a, tensors()[f"base_model.model.{Q}.lora_A.weight"])
    np.testing.assert_array_equal(adapter.pairs[Q].b, tensors()[f"base_model.model.{Q}.lora_B.weight"])


def test_a_rank_pattern_gives_modules_their_own_rank(tmp_path: Path) -> None:
    path = support.write_peft(tmp_path, tensors(down=3), rank=2, rank_pattern={"mlp.down_proj": 3})
    adapter = read_peft(path)
    assert {module: lora.rank for module, lora in adapter.pairs.items()} == {Q: 2, DOWN: 3}
    with pytest.raises(IncompatibleAdapter, match=r"ranks \[2, 3\]"):
        _ = adapter.rank
    support.write_peft(tmp_path, tensors(down=3), rank=2, rank_pattern={"down": 3})
    with pytest.raises(CorruptAdapter, match="expected rank 2 in both"):
        read_peft(path)
    support.write_peft(tmp_path, tensors(down=3), rank=2, rank_pattern={"(": 3})
    with pytest.raises(CorruptAdapter, match="isn't a regular expression"):
        read_peft(path)


def test_rslora_is_worked_into_alpha_where_one_alpha_can_say_it(tmp_path: Path) -> None:
    path = support.write_peft(tmp_path, tensors(q=4, down=4), lora_alpha=6, use_rslora=True)
    assert read_peft(path).alpha == 12
    pattern = {"rank_pattern": {"down_proj": 4}, "use_rslora": True}
    support.write_peft(tmp_path, tensors(down=4), rank=2, **pattern)
    with pytest.raises(IncompatibleAdapter, match="different ranks"):
        read_peft(path)


@given(q=st.integers(1, 5), down=st.integers(1, 5), alpha=st.floats(-64, 64, width=32))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, q: int, down: int, alpha: float
) -> None:
    raw = tensors(q=q, down=down)
    pairs = {
        module: Lora(
            raw[f"base_model.model.{module}.lora_A.weight"], raw[f"base_model.model.{module}.lora_B.weight"]
        )
        for module in (Q, DOWN)
    }
    target = tmp_path_factory.mktemp("peft") / "adapter"
    write_peft(PeftAdapter(alpha, pairs), target, "a-model")
    found = read_peft(target)
    assert found.alpha == alpha
    assert found.pairs.keys() == pairs.keys()
    for module, pair in pairs.items():
        np.testing.assert_array_equal(found.pairs[module].a, pair.a)
        np.testing.assert_array_equal(found.pairs[module].b, pair.b)
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o600}
    assert target.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError, match="exists"):
        write_peft(PeftAdapter(alpha, pairs), target, "a-model")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    pairs = {Q: Lora(np.ones((4, 5000), np.float32), np.ones((5000, 4), np.float32))}
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_peft(PeftAdapter(1.0, pairs), tmp_path / "adapter", "a-model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
