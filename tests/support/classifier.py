"""A tiny sequence classifier with random weights, as a foreign reward model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from tests.support.rated import DISLIKED, LIKED, WORDS


def classifier(path: Path, *, labels: int = 1, head: bool = True, **config: Any) -> Path:
    """Write one. ``head``: False makes it a causal model; ``config``: other members of its configuration."""
    words = ["[UNK]", "[PAD]", "user", "assistant", ":", LIKED, DISLIKED, *WORDS]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        path
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = LlamaConfig(vocab_size=len(words), pad_token_id=1, num_labels=labels, **sizes, **config)
    (LlamaForSequenceClassification if head else LlamaForCausalLM)(made).save_pretrained(path)
    return path
