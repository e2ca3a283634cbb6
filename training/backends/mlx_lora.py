"""LoRA on MLX, without torch: for Apple's processors. (On Linux it runs too, slowly.)

One base model is in memory, in the number format of its file. Each linear layer of its blocks is wrapped once in
mlx-lm's LoRALinear. An adapter is a set of factors for these layers; the base model is a scale of 0.

It trains as the torch backend does: same rendering, same objective, fp32 factors, AdamW with bias correction and
without decay, memory bounded by micro-batches. Sequences are padded on the right, which causal attention never sees.
Tested on Linux only.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.optimizers import AdamW, clip_grad_norm
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.sample_utils import make_sampler
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.trainer import grad_checkpoint
from mlx_lm.utils import load_model
from numpy.typing import NDArray

from burnish.adapters.convert.mlx import BASE_CONFIG, rope_misread
from burnish.adapters.convert.peft import Lora, PeftAdapter, read_peft, renamed, write_peft
from burnish.adapters.errors import AdapterError
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
    target_names,
)
from burnish.training.backends.heads import HEAD_SHARE, Heads, Ids, Pairs, head_of, no_head
from burnish.training.comments import TEMPERATURE, TOP_P
from burnish.training.errors import Diverged, JobError
from burnish.training.job import Hyperparameters, LossName
from burnish.training.objectives import Batch, diagnose, loss_named, step_metrics
from burnish.training.phases import Watch, unwatched
from burnish.training.rendering import Rendered, Renderer

# Of mixtures; their experts are no plain linear layers, and stay as they are, too.
ROUTERS = (".gate", ".router", ".shared_expert_gate")


class MlxFunctions:
    exp, where, clip, constant = mx.exp, mx.where, mx.clip, mx.stop_gradient
    log_sigmoid = nn.log_sigmoid


class _Head(KVCache):  # type: ignore[misc]
    """A layer's keys and values, which each row of a batch continues. It takes up nothing else."""

    def __init__(self, keys: mx.array, values: mx.array) -> None:
        super().__init__()
        self.keys, self.values, self.offset = keys, values, keys.shape[2]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return _behind(self.keys, keys), _behind(self.values, values)


def _behind(first: mx.array, rows: mx.array) -> mx.array:
    return mx.concatenate([mx.broadcast_to(first, (len(rows), *first.shape[1:])), rows], axis=2)


class MlxLoraBackend:
    """The MLX trainer on the base model in ``weights``, a Hugging Face directory.

    Training starts from a copy of ``parent`` (PEFT layout; its rank and alpha stay), or from a fresh LoRA on all
    linear layers, drawn by ``seed``. Raises JobError when model or parent can't be loaded.
    """

    def __init__(self, weights: Path, parent: Path | None, config: Hyperparameters, seed: int) -> None:
        mx.random.seed(seed)
        self.watch: Watch[Any] = unwatched
        self.renderer = Renderer(weights)
        self._model = _load_base(weights)
        self._micro_batch_tokens = config.micro_batch_tokens
        self._layers = _with_lora(self._model, config)
        self._model.freeze()
        self._alpha = float(config.alpha)
        self._trained = sorted(self._layers)
        if config.targets:
            names = target_names(self._layers, config.targets)
            self._trained = [name for name in self._trained if name.rpartition(".")[2] in names]
        if parent:
            adapter = _read(parent)
            adapter = self._put(adapter)
            self._alpha, self._trained = adapter.alpha, sorted(adapter.pairs)
        for module in self._trained:
            self._layers[module].unfreeze(keys=["lora_a", "lora_b"], recurse=False)
        self._optimizer = AdamW(config.learning_rate, weight_decay=0.0, bias_correction=True)
        self._heads = Heads(self._continued)
        whole = all(type(cache) is KVCache for cache in make_prompt_cache(self._model))
        self._head = head_of if whole else no_head

    def logps(self, sequences: Sequence[Rendered], policy: Policy) -> list[Logps]:
        scores: dict[int, Logps] = {}
        with self._acting(policy):
            for places in micro_batches(sequences, self._micro_batch_tokens, self._head):
                logps, _ = self._forward([sequences[place] for place in places])
                for place, row in zip(places, logps.tolist(), strict=True):
                    scores[place] = tuple(row[: len(sequences[place].reply)])
        return [scores[place] for place in range(len(sequences))]

    def distributions(self, sequences: Sequence[Rendered], policy: Policy) -> list[Distribution]:
        distributions: dict[int, Distribution] = {}
        with self._acting(policy):
            for places in micro_batches(sequences, self._micro_batch_tokens, self._head):
                logits = self._logits([sequences[place] for place in places])
                ids = mx.argpartition(-logits, LIKELIEST, axis=2)[:, :, :LIKELIEST]
                both = ids.tolist(), mx.exp(_group_logps(logits, ids)).tolist()
                for place, *rows in zip(places, *both, strict=True):
                    length = len(sequences[place].reply)
                    distributions[place] = Distribution(*(tuple(map(tuple, row[:length])) for row in rows))
        return [distributions[place] for place in range(len(sequences))]

    def similarity(self, sequences: Sequence[Rendered]) -> NDArray[np.float64]:
        factors = [self._layers[module].lora_b for module in self._trained]  # (r, out) each
        self._heads.under("trained")
        rank = factors[0].shape[0]
        count = directions(len(sequences), rank, sum(factor.shape[1] for factor in factors))
        dice = mx.random.key(0)
        signs = (
            mx.eye(rank) if count == rank else mx.random.bernoulli(shape=(count, rank), key=dice) * 2.0 - 1.0
        )
        rows = {}
        differentiated = nn.value_and_grad(self._model, lambda reply: self._forward([reply])[0].mean())
        for (place,) in self.watch(micro_batches(sequences, 0, self._head)):
            with self._recomputing_layers([sequences[place]]):
                _, gradient = differentiated(sequences[place])
                grown = dict(tree_flatten(gradient))
                rows[place] = [
                    (signs @ grown[f"{module}.lora_b"]).astype(mx.bfloat16) for module in self._trained
                ]
                mx.eval(rows[place])
        kernel = np.zeros((len(rows), len(rows)))
        for matrix in zip(
            *(rows[place] for place in range(len(rows))), strict=True
        ):  # one matrix of all replies at a time: fp32 is twice as large
            flat = mx.stack(matrix).reshape(len(rows), -1).astype(mx.float32)
            kernel += np.array(flat @ flat.T, dtype=np.float64)
        lengths = np.sqrt(np.maximum(kernel.diagonal(), np.finfo(np.float64).tiny))
        return np.asarray(kernel / np.outer(lengths, lengths))

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
        draw = make_sampler(temp=0.0 if greedy else TEMPERATURE, top_p=TOP_P)
        replies, ends = tries.drawn(), self.renderer.end_ids
        with self._acting(policy):
            for (place,) in self.watch([[place] for place in range(len(prompts))]):
                if place in replies:
                    continue
                mx.random.seed(seed + place)  # of its own: a stopped run goes on between two tries
                ids: list[int] = []
                logps: list[float] = []
                for token, logp in generate_step(
                    mx.array(prompts[place]), self._model, max_tokens=limits[place], sampler=draw
                ):
                    ids.append(int(token))
                    logps.append(float(logp[ids[-1]]))
                    if ids[-1] in ends:
                        break
                finished = bool(ids) and ids[-1] in ends
                replies[place] = Sampled(tuple(ids), tuple(logps), finished)
                tries.keep(replies)
        return [replies[place] for place in range(len(prompts))]

    def step(self, batch: Sequence[Lesson], config: Hyperparameters, point: float) -> dict[str, float]:
        self._heads.under("trained")
        count = sum(len(lesson.replies) for lesson in batch)

        def loss_of(name: LossName, members: Sequence[Lesson]) -> tuple[mx.array, dict[str, mx.array]]:
            arrays = self._batch(members, point)
            return loss_named(name)(arrays, config, MlxFunctions) / count, diagnose(
                arrays, config, MlxFunctions
            )

        differentiated = nn.value_and_grad(self._model, loss_of)
        loss, sums, gradient = 0.0, Counter[str](), None
        for name, members in lesson_batches(batch, self._micro_batch_tokens, self._head):
            replies = [reply.tokens for lesson in members for reply in lesson.replies]
            with self._recomputing_layers(replies):
                (part, metrics), grown = differentiated(name, members)
                gradient = grown if gradient is None else tree_map(mx.add, gradient, grown)
                mx.eval(part, metrics, gradient)  # now, so that no two micro-batches are in memory
            loss += part.item()
            if not members[0].rehearsed:
                sums.update({key: float(metric) for key, metric in metrics.items()})
        clipped, norm = clip_grad_norm(gradient, MAX_GRAD_NORM)
        if not (math.isfinite(loss) and math.isfinite(norm.item())):
            raise Diverged(
                f"loss {loss}, gradient norm {norm.item()}: lower learning_rate ({config.learning_rate})"
            )
        self._update(clipped, config.lora_plus_ratio)
        mx.eval(self._model.trainable_parameters(), self._optimizer.state)
        self._heads.forget()
        return {"loss": loss, "grad_norm": norm.item(), **step_metrics(sums)}

    def _update(self, gradient: Any, ratio: float) -> None:
        """Make the optimiser's step, ``ratio`` times as long in the matrices B: AdamW's step is linear in its rate."""
        matrices = {module: self._layers[module].lora_b for module in self._trained}
        self._optimizer.update(self._model, gradient)
        if ratio != 1:
            for module, old in matrices.items():
                layer = self._layers[module]
                layer.lora_b = old + ratio * (layer.lora_b - old)

    def _batch(self, members: Sequence[Lesson], point: float) -> Batch:
        replies = [reply for lesson in members for reply in lesson.replies]
        sequences = [reply.tokens for reply in replies]
        logits = self._logits(sequences)
        logps, mask = _scored(logits, sequences)
        batch = Batch(
            policy=logps,
            behaviour=_padded([reply.behaviour_logps for reply in replies]),
            reference=_padded([reply.reference_logps for reply in replies]),
            mask=mask,
            advantages=_padded([reply.advantages for reply in replies]),
            good=mx.array([reply.good for reply in replies]),
            weights=mx.array([reply.weight for reply in replies]),
            point=point,
        )
        teachers = [reply.teacher for reply in replies if reply.teacher]
        if not teachers:
            return batch
        ids = _padded([teacher.ids for teacher in teachers], (0,) * LIKELIEST)  # (B, R, K)
        return replace(
            batch,
            teacher=_padded([teacher.probabilities for teacher in teachers], (0.0,) * (LIKELIEST + 1)),
            student=_group_logps(logits, ids),
        )

    def weight_change(self, adapter: Path) -> float:
        change = total = 0.0
        with self._acting(adapter):
            for layer in self._layers.values():
                if not layer.scale:
                    continue
                a, b = layer.lora_a.astype(mx.float32), layer.lora_b.astype(mx.float32)
                # The r x r way to the norm of a matrix as large as the layer.
                change += layer.scale**2 * ((a.T @ a) * (b @ b.T)).sum().item()
                total += mx.square(_weight(layer.linear).astype(mx.float32)).sum().item()
        return math.sqrt(change / total)

    def checkpoint(self, path: Path) -> None:
        state = {"trained": self._model.trainable_parameters(), "optimizer": self._optimizer.state}
        with path.open("wb") as file:
            mx.save_safetensors(file, dict(tree_flatten(state)))

    def restore(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                state = tree_unflatten(list(mx.load(file, format="safetensors").items()))
        except (OSError, ValueError, RuntimeError) as error:
            raise JobError(f"cannot load the checkpoint {path}: {error}") from error
        self._model.update(state["trained"])
        self._optimizer.state = state["optimizer"]
        mx.eval(self._model.trainable_parameters(), self._optimizer.state)

    def save(self, directory: Path, base_model: str) -> None:
        layers = {module: self._layers[module] for module in self._trained}
        pairs = {
            module: Lora(np.array(layer.lora_a.T), np.array(layer.lora_b.T))
            for module, layer in layers.items()
        }
        whole = directory / "peft"
        write_peft(PeftAdapter(self._alpha, pairs), whole, base_model)
        for path in whole.iterdir():
            path.rename(directory / path.name)
        whole.rmdir()

    @contextmanager
    def _acting(self, policy: Policy) -> Iterator[None]:
        self._heads.under(policy)
        if policy == "trained":
            yield
            return
        adapter = _read(policy) if isinstance(policy, Path) else PeftAdapter(0.0, {})
        originals = {name: (layer.lora_a, layer.lora_b, layer.scale) for name, layer in self._layers.items()}
        try:
            self._put(adapter)
            yield
        finally:
            for module, factors in originals.items():
                _set(self._layers[module], *factors)

    def _put(self, adapter: PeftAdapter) -> PeftAdapter:
        """Give each layer its factors; layers that the adapter leaves alone get a scale of 0. Raises JobError.

        Return it under mlx-lm's names of the layers.
        """
        try:
            adapter = renamed(adapter, self._layers)
        except AdapterError as error:
            raise JobError(str(error)) from error
        for module, lora in adapter.pairs.items():
            layer = self._layers.get(module)
            shape = (lora.a.shape[1], lora.b.shape[0])
            if layer is None or shape != (layer.lora_a.shape[0], layer.lora_b.shape[1]):
                raise JobError(f"the base model has no linear layer {module} of {shape[1]} x {shape[0]}")
        for module, layer in self._layers.items():
            if own := adapter.pairs.get(module):
                _set(layer, mx.array(own.a.T), mx.array(own.b.T), adapter.alpha / own.rank)
            else:
                layer.scale = 0.0
        return adapter

    def _forward(self, sequences: Sequence[Rendered]) -> tuple[mx.array, mx.array]:
        """Return log-probabilities of the reply tokens and their mask, both (B, R), replies at the left."""
        return _scored(self._logits(sequences), sequences)

    def _logits(self, sequences: Sequence[Rendered]) -> mx.array:
        """Return what the reply tokens are predicted by in fp32, (B, R, V), replies at the left."""
        head = self._head([s.prompt for s in sequences])
        ids = _padded([s.ids[len(head) :] for s in sequences], fill=self.renderer.pad_id)  # (B, T + 1)
        pairs = self._heads.pairs(head) if head else ()
        logits = self._model(ids[:, :-1], cache=[_Head(*pair) for pair in pairs] or None)  # (B, T, V)
        # Only the reply's in fp32: they are the trainer's largest array.
        predicting = [range(len(s.prompt) - len(head) - 1, len(s.ids) - len(head) - 1) for s in sequences]
        return mx.take_along_axis(logits, _padded(predicting)[:, :, None], axis=1).astype(mx.float32)

    def _continued(self, pairs: Pairs, ids: Ids) -> Pairs:
        """Compute the keys and values of tokens behind others; return all."""
        cache = make_prompt_cache(self._model)
        for layer, pair in zip(cache, pairs, strict=bool(pairs)):
            layer.update_and_fetch(*pair)
        self._model(mx.array([ids]), cache=cache)
        whole = [layer.keys_and_values() for layer in cache]
        mx.eval(whole)
        return whole

    @contextmanager
    def _recomputing_layers(self, sequences: Sequence[Rendered]) -> Iterator[None]:
        """Keep no activations inside layers for the backward pass, where one conversation is above the limit.

        The head of the sequences is read before, because nothing can be evaluated inside a gradient.
        """
        head = self._head([s.prompt for s in sequences])
        self._heads.pairs(head)
        tokens = sum(len(s.ids) - len(head) + round(HEAD_SHARE * len(head)) for s in sequences)
        if tokens <= self._micro_batch_tokens:
            yield
            return
        kinds = {type(layer): layer for layer in self._model.layers}
        calls = {kind: kind.__call__ for kind in kinds}
        for layer in kinds.values():
            grad_checkpoint(layer)  # mlx-lm's own: it changes the class
        try:
            yield
        finally:
            for kind, call in calls.items():
                kind.__call__ = call


def _load_base(weights: Path) -> Any:
    try:
        config = json.loads((weights / BASE_CONFIG).read_bytes())
        # What transformers 5 writes where mlx-lm does not look.
        model, _ = load_model(weights, model_config=rope_misread(config))
    except (OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise JobError(f"cannot load the base model {weights}: {error}") from error
    return model.eval()


def _with_lora(model: Any, config: Hyperparameters) -> dict[str, Any]:
    """Wrap each linear layer except the output head; return the wrapped layers by name."""
    wrapped = {
        name: LoRALinear.from_base(module, r=config.rank, scale=config.alpha / config.rank, dropout=0.0)
        for name, module in model.named_modules()
        if "layers" in name.split(".")
        and isinstance(module, nn.Linear | nn.QuantizedLinear)
        and not name.endswith(ROUTERS)
    }
    model.update_modules(tree_unflatten(list(wrapped.items())))
    return wrapped


def _weight(linear: Any) -> mx.array:
    if not isinstance(linear, nn.QuantizedLinear):
        return linear.weight
    return mx.dequantize(
        linear.weight, linear.scales, linear.biases, linear.group_size, linear.bits, mode=linear.mode
    )


def _read(adapter: Path) -> PeftAdapter:
    try:
        return read_peft(adapter)
    except AdapterError as error:
        raise JobError(f"cannot load the adapter {adapter}: {error}") from error


def _set(layer: Any, a: mx.array, b: mx.array, scale: float) -> None:
    """a: (in, r); b: (r, out)."""
    layer.lora_a, layer.lora_b, layer.scale = a, b, scale


def _scored(logits: mx.array, sequences: Sequence[Rendered]) -> tuple[mx.array, mx.array]:
    targets = _padded([s.reply for s in sequences])  # (B, R)
    scores = mx.take_along_axis(logits, targets[:, :, None], axis=2).squeeze(2)
    return scores - mx.logsumexp(logits, axis=2), _padded([[True] * len(s.reply) for s in sequences])


def _group_logps(logits: mx.array, ids: mx.array) -> mx.array:
    """Return log softmax(logits)[ids], and that of all other tokens together: (B, R, V), (B, R, K) → (B, R, K + 1)."""
    hidden = mx.put_along_axis(logits, ids, mx.array(-math.inf), axis=2)
    grouped = [mx.take_along_axis(logits, ids, axis=2), mx.logsumexp(hidden, axis=2, keepdims=True)]
    return mx.concatenate(grouped, axis=2) - mx.logsumexp(logits, axis=2, keepdims=True)


def _padded(rows: Sequence[Sequence[Any]], fill: Any = 0) -> mx.array:
    """Fill up rows on their right, (B, longest)."""
    longest = max(map(len, rows))
    return mx.array([[*row, *[fill] * (longest - len(row))] for row in rows])
