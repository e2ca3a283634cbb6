"""How a quantised base is asked for; whether it then trains needs a GPU."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from burnish.system.extras import how_to_install
from burnish.training.backends.torch_device import quantization
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.errors import JobError, MissingDependency
from burnish.training.job import Hyperparameters, Quantize

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


@pytest.mark.parametrize("device", [CPU, GPU])
def test_none_leaves_the_model_as_it_is(device: torch.device) -> None:
    assert quantization("none", device, torch.float32) is None


@pytest.mark.parametrize("wanted", ["8bit", "4bit"])
def test_off_cuda_it_is_refused_before_anything_is_loaded(tmp_path: Path, wanted: Quantize) -> None:
    with pytest.raises(JobError, match=f"{wanted}.*NVIDIA GPU.*'cpu'.*set train"):
        TorchPeftBackend(tmp_path / "absent", None, Hyperparameters(), 0, device="cpu", quantize=wanted)


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_without_the_package_it_says_how_to_install_it() -> None:
    with pytest.raises(MissingDependency, match=re.escape(how_to_install("quantize"))):
        quantization("4bit", GPU, torch.bfloat16)


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="needs bitsandbytes: the extra quantize")
def test_four_bits_are_nf4_with_quantised_constants() -> None:
    asked = quantization("4bit", GPU, torch.bfloat16)
    assert asked.load_in_4bit
    assert asked.bnb_4bit_quant_type == "nf4"
    assert asked.bnb_4bit_use_double_quant
    assert asked.bnb_4bit_compute_dtype is torch.bfloat16


@pytest.mark.gpu
@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="needs bitsandbytes: the extra quantize")
@pytest.mark.parametrize("wanted", ["8bit", "4bit"])
def test_an_adapter_of_a_quantised_base_is_whole(weights: Path, tmp_path: Path, wanted: Quantize) -> None:
    backend = TorchPeftBackend(weights, None, Hyperparameters(), 0, device="cuda", quantize=wanted)
    backend.save(tmp_path, "smollm2")
    assert (tmp_path / "adapter_model.safetensors").stat().st_size > 1_000_000
