"""The reader of GGUF files says what gguf's own says, except that it passes over long lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.adapters.convert.gguf_layout import LONG_LIST, field, open_gguf
from tests.support.tiny_gguf import finish

# Rows of lists around the length from which they are passed over.
COUNTS = st.integers(LONG_LIST - 1, LONG_LIST + 1)
LONG = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")


def write(path: Path, tokens: int, types: int, order: Any = gguf.GGUFEndian.LITTLE) -> Path:
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    writer.add_token_list([f"§{number}" for number in range(tokens)])
    writer.add_token_types(list(range(types)))
    writer.add_array("llama.of_each_layer", [3, 1, 2])
    writer.add_block_count(7)
    writer.add_tensor("token_embd.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    finish(writer)
    return path


@settings(max_examples=20)
@given(tokens=COUNTS, types=COUNTS, order=st.sampled_from(list(gguf.GGUFEndian)))
def test_long_lists_are_empty_and_all_else_is_as_gguf_reads_it(
    tmp_path_factory: pytest.TempPathFactory, tokens: int, types: int, order: Any
) -> None:
    path = write(tmp_path_factory.mktemp("gguf") / "base.gguf", tokens, types, order)
    ours, own = open_gguf(path), gguf.GGUFReader(path)
    assert list(ours.fields) == list(own.fields)
    for key in own.fields:
        expected = field(own, key)
        assert field(ours, key) == ([] if key in LONG and len(expected) > LONG_LIST else expected), key
    assert ours.data_offset == own.data_offset
    np.testing.assert_array_equal(ours.tensors[0].data, own.tensors[0].data)


def test_a_file_that_ends_within_a_long_list_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = write(tmp_path / "base.gguf", LONG_LIST + 1, LONG_LIST + 1).read_bytes()
    torn = tmp_path / "torn.gguf"
    for size in range(40, len(whole), 211):
        torn.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="the file is cut"):
            open_gguf(torn)


def test_a_length_that_reaches_beyond_the_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "base.gguf", LONG_LIST + 1, 3)
    whole = path.read_bytes()
    second = whole.index("§1".encode())
    path.write_bytes(whole[: second - 8] + b"\xff" * 8 + whole[second:])
    with pytest.raises(ValueError, match="cut"):
        open_gguf(path)
