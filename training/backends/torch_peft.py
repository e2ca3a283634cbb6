"""LoRA on torch and peft: one base model in memory, adapters switched on it.

Memory limits a laptop. So logits are computed for reply tokens only, and what several sequences begin with is computed
once: their tokens are a tree in one row. Models that can't do that get rows padded on the left. Log-probabilities are
computed in slices, and a batch in micro-batches of at most ``micro_batch_tokens``. A longer conversation recomputes its
layers in the backward pass instead of keeping them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from peft.utils.integrations import dequantize_module_weight
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pad_sequence

from burnish.training.backends.base import (
    LIKELIEST,
    MAX_GRAD_NORM,
    UNKEPT,
    Distribution,
    Lesson,
    Logps,
    Policy,
    Sampled,
    Tries,
    directions,
    lesson_batches,
    micro_batches,
)
from burnish.training.backends.heads import HEAD_SHARE, Heads, Ids, Pairs, head_of, no_head, woven_tokens
from burnish.training.backends.torch_base import compute_narrowly, fresh_lora, load_base, loading, quiet
from burnish.training.backends.torch_device import (
    faster_dtype,
    micro_batch_tokens,
    quantization,
    training_device,
)
from burnish.training.backends.torch_heads import ancestors, behind, continued, has_heads, weaves
from burnish.training.backends.torch_logits import draw, group_logps, sampled_together, token_logps
from burnish.training.backends.torch_names import PREFIX, loadable, stored_names
from burnish.training.errors import Diverged
from burnish.training.job import Hyperparameters, Quantize
from burnish.training.objectives import Batch, diagnose, loss_named, step_metrics
from burnish.training.phases import Watch, unwatched
from burnish.training.rendering import Rendered, Renderer

# peft's own names.
TRAINED, SCORED = "default", "scored"


class TorchFunctions:
    exp, where, clip, constant = torch.exp, torch.where, torch.clip, Tensor.detach
    log_sigmoid = torch.nn.functional.logsigmoid


class TorchPeftBackend:
    """The torch/peft trainer on the base model in ``weights``, a Hugging Face directory.

    Training starts from a copy of ``parent`` (PEFT layout; its rank and alpha stay), or from a fresh LoRA on all
    linear layers, drawn by ``seed``. ``device`` is a ``train.device``. Raises JobError when model or parent can't be
    loaded, or there is no such device, or no room on one that is shared.
    """

    def __init__(
        self,
        weights: Path,
        parent: Path | None,
        config: Hyperparameters,
        seed: int,
        *,
        device: str = "auto",
        quantize: Quantize = "none",
    ) -> None:
        torch.manual_seed(seed)
        self.watch: Watch[Any] = unwatched
        self._device = training_device(device, weights, config, quantize)
        self.dtype = faster_dtype(self._device)
        quantized = quantization(quantize, self._device, self.dtype)
        self.renderer = Renderer(weights)
        self._micro_batch_tokens = micro_batch_tokens(self._device, self.dtype, weights, config, quantize)
        with loading("base model", weights):
            base = load_base(weights, self.dtype, self._device, quantized)
        self._modules = frozenset(
            n for n, module in base.named_modules() if isinstance(module, torch.nn.Linear)
        )
        if parent is None:
            with quiet():
                self._model = get_peft_model(base, fresh_lora(base, config), adapter_name=TRAINED)
        else:
            with loadable(parent, self._modules) as path, loading("adapter", parent):
                self._model = PeftModel.from_pretrained(base, path, adapter_name=TRAINED, is_trainable=True)
        layers = [name for name, module in self._model.named_modules() if isinstance(module, LoraLayer)]
        self._stored = stored_names([name.removeprefix(PREFIX) for name in layers], weights)
        self._model.eval()
        compute_narrowly(self._model)
        self._heads = Heads(partial(continued, self._model))
        self._head = head_of if has_heads(self._model) else no_head
        self._weaves = self._head is head_of and weaves(self._model)
        self._trained = [p for p in self._model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(_groups(self._model, config), weight_decay=0.0)

    def logps(self, sequences: Sequence[Rendered], policy: Policy) -> list[Logps]:
        scores: dict[int, Logps] = {}
        with self._acting(policy), torch.no_grad():
            for places in self._micro_batches(sequences):
                replies = [sequences[place] for place in places]
                for place, logps in zip(places, self._logps(replies), strict=True):
                    scores[place] = tuple(logps.tolist())
        return [scores[place] for place in range(len(sequences))]

    def distributions(self, sequences: Sequence[Rendered], policy: Policy) -> list[Distribution]:
        distributions: dict[int, Distribution] = {}
        with self._acting(policy), torch.no_grad():
            for places in self._micro_batches(sequences):
                replies = [sequences[place] for place in places]
                logits = self._logits(replies)
                ids = logits.topk(LIKELIEST).indices
                probabilities = group_logps(logits, ids).exp()
                for place, *rows in zip(
                    places, _by_reply(ids, replies), _by_reply(probabilities, replies), strict=True
                ):
                    distributions[place] = Distribution(*(tuple(map(tuple, row.tolist())) for row in rows))
        return [distributions[place] for place in range(len(sequences))]

    def similarity(self, sequences: Sequence[Rendered]) -> NDArray[np.float64]:
        matrices = [p for name, p in self._model.named_parameters() if p.requires_grad and ".lora_B." in name]
        projections = _projections(len(sequences), matrices)
        self._heads.under("trained")
        rows = {}
        for (place,) in self.watch(micro_batches(sequences, 0, self._head)):
            (logps,) = self._logps([sequences[place]])
            gradients = torch.autograd.grad(logps.mean(), matrices)
            rows[place] = [
                (gradient if by is None else gradient.float() @ by).bfloat16()
                for gradient, by in zip(gradients, projections, strict=True)
            ]
        kernel = torch.zeros(len(rows), len(rows), dtype=torch.float64)
        for matrix in zip(
            *(rows[place] for place in range(len(rows))), strict=True
        ):  # one matrix of all replies at a time: fp32 is twice as large
            flat = torch.stack(matrix).flatten(1).float()
            kernel += (flat @ flat.T).double().cpu()
        lengths = kernel.diagonal().clamp(min=torch.finfo(torch.float64).tiny).sqrt()
        return np.asarray((kernel / torch.outer(lengths, lengths)).numpy())

    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        policy: Policy,
        limits: Sequence[int],
        seed: int,
        tries: Tries = UNKEPT,
        *,
        greedy: bool = False,
    ) -> list[Sampled]:
        replies, ends = tries.drawn(), self.renderer.end_ids
        heads = [self._head([prompt]) for prompt in prompts]
        groups = sampled_together(heads, [len(prompt) for prompt in prompts], limits)
        with self._acting(policy), torch.no_grad():
            for number, places in enumerate(self.watch(groups)):
                if replies.keys() >= {*places}:
                    continue
                torch.manual_seed(seed + number)  # of its own: a stopped run goes on between two groups
                head = heads[places[0]]
                rows = [prompts[place][len(head) :] for place in places]
                ids = self._padded(rows, at_left=True, fill=self.renderer.pad_id)
                attended = self._padded([[1] * len(row) for row in rows], at_left=True)
                longest = [limits[place] for place in places]
                pairs = self._heads.pairs(head) if head else ()
                drawn = draw(self._model, ids, attended, ends, longest, head=pairs, greedy=greedy)
                replies.update(zip(places, drawn, strict=True))
                tries.keep(replies)
        return [replies[place] for place in range(len(prompts))]

    def step(self, batch: Sequence[Lesson], config: Hyperparameters, point: float) -> dict[str, float]:
        self._optimizer.zero_grad(set_to_none=True)
        self._heads.under("trained")
        count = sum(len(lesson.replies) for lesson in batch)
        loss_sum, sums = 0.0, Counter[str]()
        limit = self._micro_batch_tokens
        for name, members in lesson_batches(batch, limit, self._head, woven=self._weaves):
            arrays = self._batch(members, point)
            loss = loss_named(name)(arrays, config, TorchFunctions) / count
            loss.backward()
            loss_sum += loss.item()
            if not members[0].rehearsed:
                metrics = diagnose(arrays, config, TorchFunctions)
                sums.update({key: float(metric) for key, metric in metrics.items()})
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained, MAX_GRAD_NORM))
        if not (math.isfinite(loss_sum) and math.isfinite(norm)):
            self._optimizer.zero_grad(set_to_none=True)
            raise Diverged(
                f"loss {loss_sum}, gradient norm {norm}: lower learning_rate ({config.learning_rate})"
            )
        self._optimizer.step()
        self._heads.forget()
        return {"loss": loss_sum, "grad_norm": norm, **step_metrics(sums)}

    def _batch(self, members: Sequence[Lesson], point: float) -> Batch:
        replies = [reply for lesson in members for reply in lesson.replies]
        sequences = [reply.tokens for reply in replies]
        logits = self._logits(sequences)
        batch = Batch(
            policy=pad_sequence(self._scored(logits, sequences), batch_first=True),
            behaviour=self._padded([reply.behaviour_logps for reply in replies]),
            reference=self._padded([reply.reference_logps for reply in replies]),
            mask=self._padded([[True] * len(s.reply) for s in sequences]),
            advantages=self._padded([reply.advantages for reply in replies]),
            good=torch.tensor([reply.good for reply in replies], device=self._device),
            weights=torch.tensor([reply.weight for reply in replies], device=self._device),
            point=point,
        )
        teachers = [reply.teacher for reply in replies if reply.teacher]
        if not teachers:
            return batch
        ids = torch.tensor([ids for teacher in teachers for ids in teacher.ids], device=self._device)
        student = _by_reply(group_logps(logits, ids), sequences)
        return replace(
            batch,
            teacher=self._padded([teacher.probabilities for teacher in teachers]),
            student=pad_sequence(student, batch_first=True),  # (B, R, K + 1)
        )

    def weight_change(self, adapter: Path) -> float:
        change = total = 0.0
        with self._loaded(adapter), torch.no_grad():
            for module in self._model.modules():
                if not isinstance(module, LoraLayer) or SCORED not in module.lora_A:
                    continue
                a, b = (factors[SCORED].weight.float() for factors in (module.lora_A, module.lora_B))
                # ‖BA‖² = tr(BᵀB·AAᵀ): r x r, where BA is as large as the model.
                square = ((b.T @ b) * (a @ a.T)).sum().item()
                change += module.scaling[SCORED] ** 2 * square
                weight = dequantize_module_weight(module.get_base_layer())
                total += torch.linalg.vector_norm(weight, dtype=torch.float32).item() ** 2
        return math.sqrt(change / total)

    def checkpoint(self, path: Path) -> None:
        torch.save({"trained": self._trained, "optimizer": self._optimizer.state_dict()}, path)

    def restore(self, path: Path) -> None:
        with loading("checkpoint", path), torch.no_grad():
            state = torch.load(path, map_location=self._device, weights_only=True)
            self._optimizer.load_state_dict(state["optimizer"])
            for parameter, saved in zip(self._trained, state["trained"], strict=True):
                parameter.copy_(saved)

    def save(self, directory: Path, base_model: str) -> None:
        state = get_peft_model_state_dict(self._model, adapter_name=TRAINED, save_embedding_layers=False)
        tensors = {}
        for name, tensor in state.items():
            module, mark, half = name.removeprefix(PREFIX).partition(".lora_")
            tensors[f"{PREFIX}{self._stored[module]}{mark}{half}"] = (
                tensor.detach().float().cpu().contiguous()
            )
        save_file(
            tensors,
            directory / "adapter_model.safetensors",
            metadata={"format": "pt"},
        )
        config = self._model.peft_config[TRAINED].to_dict()
        config |= {
            "base_model_name_or_path": base_model,
            "inference_mode": True,
            "target_modules": sorted(config["target_modules"]),
        }
        (directory / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    @contextmanager
    def _acting(self, policy: Policy) -> Iterator[None]:
        self._heads.under(policy)
        if isinstance(policy, Path):
            with self._loaded(policy):
                yield
        else:
            with self._model.disable_adapter() if policy == "bare" else nullcontext():
                yield

    @contextmanager
    def _loaded(self, adapter: Path) -> Iterator[None]:
        try:
            with loadable(adapter, self._modules) as path, loading("adapter", adapter):
                self._model.load_adapter(path, adapter_name=SCORED, is_trainable=False)
            self._model.set_adapter(SCORED)
            yield
        finally:
            self._model.set_adapter(TRAINED)
            if SCORED in self._model.peft_config:  # also when loading it failed half-way
                self._model.delete_adapter(SCORED)

    def _micro_batches(self, sequences: Sequence[Rendered]) -> list[list[int]]:
        return micro_batches(sequences, self._micro_batch_tokens, self._head, woven=self._weaves)

    def _logps(self, sequences: Sequence[Rendered]) -> list[Tensor]:
        return self._scored(self._logits(sequences), sequences)

    def _scored(self, logits: Tensor, sequences: Sequence[Rendered]) -> list[Tensor]:
        """Return the log-probabilities of each reply's tokens, (R,)."""
        targets = torch.tensor([token for s in sequences for token in s.reply], device=self._device)
        return _by_reply(token_logps(logits, targets), sequences)

    def _logits(self, sequences: Sequence[Rendered]) -> Tensor:
        """Return the logits that predict the reply tokens of all sequences, one behind the other, (ΣR, V)."""
        head = self._head([s.prompt for s in sequences])
        rows = [s.ids[len(head) : -1] for s in sequences]  # the last token is predicted, and predicts nothing
        pairs = self._heads.pairs(head) if head else ()
        if self._weaves and (len(rows) > 1 or len(rows[0]) <= self._micro_batch_tokens):
            return self._woven_logits(sequences, rows, pairs)
        ids = self._padded(rows, at_left=True, fill=self.renderer.pad_id)  # (B, T)
        attended = self._padded([[1] * len(row) for row in rows], at_left=True)
        mask = torch.cat([attended.new_ones(len(rows), len(head)), attended], dim=1)  # (B, H + T)
        longest = max(len(s.reply) for s in sequences)
        logits = self._passed(
            ids,
            # Without a mask attention needs no T x T matrix, which is what a long conversation dies of.
            None if attended.all() else mask,
            len(head) + (attended.cumsum(dim=1) - 1).clamp(min=0),
            torch.arange(ids.shape[1] - longest, ids.shape[1]),
            pairs,
        )  # (B, R, V), replies at the right
        return torch.cat([row[longest - len(s.reply) :] for row, s in zip(logits, sequences, strict=True)])

    def _woven_logits(self, sequences: Sequence[Rendered], rows: Sequence[Ids], pairs: Pairs) -> Tensor:
        woven = woven_tokens(rows)
        depths, tree = ancestors(woven)
        head = torch.ones(len(tree), len(self._head([s.prompt for s in sequences])), dtype=torch.bool)
        places = [
            node
            for s, path in zip(sequences, woven.paths, strict=True)
            for node in path[len(path) - len(s.reply) :]
        ]
        logits = self._passed(
            torch.tensor([woven.ids]),
            torch.cat([head, tree], dim=1)[None, None],
            head.shape[1] + depths[None],
            torch.tensor(places),
            pairs,
        )
        return logits[0]

    def _passed(
        self, ids: Tensor, mask: Tensor | None, positions: Tensor, places: Tensor, pairs: Pairs
    ) -> Tensor:
        """Return the model's logits at some places of each row, (B, places, V)."""
        head = pairs[0][0].shape[2] if pairs else 0
        tokens = ids.numel() + round(HEAD_SHARE * len(ids) * head)
        with self._sparing(tokens) if torch.is_grad_enabled() else nullcontext():
            logits: Tensor = self._model(
                input_ids=ids.to(self._device),
                attention_mask=None if mask is None else mask.to(self._device),
                position_ids=positions.to(self._device),
                # Places, not their count: for a slice of a batch torch copies the head's weights for each row.
                logits_to_keep=places.to(self._device),
                use_cache=False,
                **behind(self._model, pairs),
            ).logits
        return logits

    def _sparing(self, tokens: int) -> AbstractContextManager[None]:
        """Spare memory where one conversation is above the limit, and processor time where there is memory."""
        if tokens > self._micro_batch_tokens:
            return _recomputing_layers(self._model)
        return sdpa_kernel(SDPBackend.MATH) if self._device.type == "cpu" else nullcontext()

    def _padded(self, rows: Sequence[Sequence[Any]], *, at_left: bool = False, fill: float = 0) -> Tensor:
        return pad_sequence(
            [torch.tensor(row, device=self._device) for row in rows],
            batch_first=True,
            padding_value=fill,
            padding_side="left" if at_left else "right",
        )


def _by_reply(rows: Tensor, sequences: Sequence[Rendered]) -> list[Tensor]:
    """Split what belongs to the replies' tokens, (ΣR, …), into that of each, (R, …)."""
    return list(torch.split(rows, [len(s.reply) for s in sequences]))


def _projections(replies: int, matrices: list[Tensor]) -> list[Tensor | None]:
    """Return random signs (r, count) that gradients of matrices (out, r) are multiplied by; None: all of them fits."""
    rank = matrices[0].shape[1]
    count = directions(replies, rank, sum(len(matrix) for matrix in matrices))
    if count == rank:
        return [None] * len(matrices)
    dice = torch.Generator().manual_seed(0)
    return [
        (torch.randint(0, 2, (rank, count), generator=dice) * 2.0 - 1).to(matrix.device)
        for matrix in matrices
    ]


def _groups(model: Any, config: Hyperparameters) -> list[dict[str, Any]]:
    """Return what is trained, each with its learning rate: B learns ``lora_plus_ratio`` times as fast."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    rates = {False: config.learning_rate, True: config.learning_rate * config.lora_plus_ratio}
    return [
        {"params": [parameter for name, parameter in trained if (".lora_B." in name) is fast], "lr": rate}
        for fast, rate in rates.items()
    ]


@contextmanager
def _recomputing_layers(model: Any) -> Iterator[None]:
    """Keep no activations inside layers for the backward pass; costs a second forward pass."""
    with quiet():
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()  # transformers recomputes in this mode only; there is no dropout that it could switch on
    try:
        yield
    finally:
        with quiet():
            model.eval()
            model.gradient_checkpointing_disable()
            model.disable_input_require_grads()
