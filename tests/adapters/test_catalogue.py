"""The list of known good models agrees with itself, with the names on the hub, and with what is measured."""

from __future__ import annotations

from datetime import date

import pytest

from burnish.adapters.catalogue import Model, find, models, nearest, tasks
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.hosts.fetch import SMALL_MODEL, ensure_small_model
from burnish.adapters.hosts.hub_cache import read_name


@pytest.mark.parametrize("model", models(), ids=[model.name for model in models()])
def test_each_entry_is_whole(model: Model) -> None:
    assert [each for each in models() if each.name == model.name] == [model]
    assert find(model.name.upper()) == model
    assert read_name(model.name) is None  # it can't be taken for a repository
    assert read_name(model.repo)
    assert model.file.endswith(".gguf")
    assert model.tasks
    assert model.sources
    assert date(2026, 1, 1) < model.checked <= date.today()
    # At least two bits, and at most ten, for each parameter.
    billions = model.parameters.partition("-")[0]
    count = float(billions[:-1]) * (1e9 if billions.endswith("B") else 1e6)
    assert 2 < model.mb * 8e6 / count < 12
    assert model.sampling.keys() <= {"temperature", "top_p", "top_k"}
    # A layer of such models has some twelve times the square of the width; the vocabulary adds to it.
    assert 10 < count / model.layers / model.hidden**2 < 30 or "A" in model.parameters


def test_the_small_model_is_listed_as_it_is() -> None:
    model, path = find(SMALL_MODEL), ensure_small_model()
    assert model
    base = read_base(path)
    assert (model.file, model.architecture) == (path.name, base.architecture)
    assert (model.layers, model.kv_heads) == (base.blocks, base.kv_heads)
    assert model.mb == round(path.stat().st_size / 1e6)
    assert base.shapes["blk.0.attn_k.weight"] == (model.kv_heads * model.head_dim, model.hidden)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        # Four slots of 4096 tokens took 380 MB (adapters/hosts/base.py).
        ("smollm2", 0.098 + 0.377),
        # 28 layers x 2 x 8 heads x 128 x 2 bytes = 114,688 bytes a token; x 16,384.
        ("qwen3-0.6b", 0.639 + 1.879),
        # 5 of 34 layers hold 4096 tokens, 29 hold 1024 + 512; 4096 bytes a token and layer.
        ("gemma-3-4b", 2.49 + 4 * (5 * 4096 + 29 * 1536) * 4096 / 1e9),
    ],
)
def test_the_memory_is_that_of_weights_and_cache(name: str, gigabytes: float) -> None:
    model = find(name)
    assert model
    assert model.memory_bytes(4, 4096) / 1e9 == pytest.approx(gigabytes, abs=0.002)
    assert model.memory_bytes(1, 10**9) == model.memory_bytes(1, model.context)


def test_models_that_only_vllm_can_train_are_marked() -> None:
    assert [model.name for model in models() if not model.learns] == [
        "phi-2",
        "phi-3-mini",
        "phi-4",
        "qwen3-30b-a3b",
    ]


def test_misspelt_names_find_their_neighbours() -> None:
    assert nearest("qwen-3-0.6b")[0] == "qwen3-0.6b"
    assert nearest("Phi4")[0] == "phi-4"
    assert nearest("zzz") == []
    assert tasks() == ["chat", "code", "text"]
