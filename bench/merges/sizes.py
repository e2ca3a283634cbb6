"""Size and time of a merge for larger models: computed from their sizes, not run."""

from __future__ import annotations

from bench.hardware import QWEN_4B, QWEN_8B, SMALL, Model

LLAMA_1B = Model("Llama 3.2 1B", 16, 2048, 8192, 2048, 512, 128_256)
MODELS = (LLAMA_1B, QWEN_4B, QWEN_8B)
GB = 1e9
BYTE_BITS = 8
Q8_0_BITS, Q6_K_BITS, Q4_K_BITS = 8.5, 6.5625, 4.5
Q6_K_SHARE = 0.5
"""Q4_K_M stores this share of the value and down projections, and the output layer, in q6_k; the rest in q4_k."""


def sizes(cpu_s: float) -> list[str]:
    """Return the lines of a table. ``cpu_s``: of a merge of the small model; time goes with the changed numbers."""
    lines = ["| model | base, q4_k_m | merged, q8_0 | merge, CPU | |", "|---|---:|---:|---:|---|"]
    for model in MODELS:
        base = (_layers(model) + _embeddings(model)) / GB
        merged = (model.body * Q8_0_BITS / BYTE_BITS + _embeddings(model)) / GB
        lines.append(
            f"| {model.name} | {base:.1f} GB | {merged:.1f} GB | {cpu_s * model.body / SMALL.body:.0f} s | computed |"
        )
    return lines


def _layers(model: Model) -> float:
    """Bytes of all layers in q4_k_m."""
    often_finer = model.layers * (model.hidden * model.keys + model.hidden * model.inner)
    finer = Q6_K_SHARE * often_finer
    return (finer * Q6_K_BITS + (model.body - finer) * Q4_K_BITS) / BYTE_BITS


def _embeddings(model: Model) -> float:
    """Bytes of embedding and output layer in q4_k_m, which stay as they are."""
    return model.head * (Q6_K_BITS if model.tied else Q6_K_BITS + Q4_K_BITS) / BYTE_BITS
