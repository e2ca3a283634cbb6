"""The MLX trainer, for real, beside torch's: the same job, the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from peft import PeftModel
from transformers import AutoModelForCausalLM

from burnish.adapters.convert.peft import read_peft
from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.hosts.fetch import file_digest
from burnish.adapters.weights_file import check_adapter
from burnish.training.backends.base import Distribution, Lesson, LessonReply
from burnish.training.backends.torch_peft import TorchFunctions, TorchPeftBackend
from burnish.training.job import Hyperparameters, JobDirectory
from burnish.training.objectives import LOSSES, diagnose
from burnish.training.rendering import Rendered, Renderer
from burnish.training.weights import prepared_weights
from tests.support.batches import batch, case, run
from tests.support.jobs import Base, brief_samples, context, write_job
from tests.support.lora import random_lora, write_peft
from tests.support.real_engines import MLX_ENVIRONMENT, MLX_PYTHON, needs
from tests.support.tiny_models import tiny_base, tiny_model, tiny_shape

pytestmark = [
    pytest.mark.engine,
    needs("mlx"),
    # Without a GPU mlx multiplies at a hundredth of what this machine could: a step of two replies takes 15 s.
    pytest.mark.timeout(600),
]

ROOM = Path(__file__).parents[2]
STEPS = 2
CONFIG = Hyperparameters(epochs=STEPS, batch_size=2, kl_stop=9.0, kl_beta=0.1)
# MLX computes as the base is stored, here in fp32; torch's trainer in bf16 on many machines.
BF16 = 0.06
EXACT = 1e-3

BOOK = "It is a book, and it is read by many people who are fond of long stories."

OBJECTIVE = """
import sys
import mlx.core as mx
import numpy as np
from burnish.training.backends.mlx_lora import MlxFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives import LOSSES, Batch, diagnose
mx.set_default_device(mx.cpu)
case = {name: mx.array(value) for name, value in np.load(sys.argv[1]).items()}
policy, student, config = case.pop("policy"), case.pop("student"), Hyperparameters(kl_beta=0.1)
for name, loss in LOSSES.items():
    def of(policy, student):
        return loss(Batch(policy, student=student, **case), config, MlxFunctions)
    value, (gradient, taught) = mx.value_and_grad(of, argnums=(0, 1))(policy, student)
    np.savez(f"{sys.argv[2]}/{name}.npz", loss=value, gradient=gradient, taught=taught)
sums = diagnose(Batch(policy, **case), config, MlxFunctions)
np.savez(f"{sys.argv[2]}/sums.npz", **{name: np.array(each) for name, each in sums.items()})
"""

SCORES = """
import json, sys
from pathlib import Path
from burnish.training.backends.base import Lesson, LessonReply
from burnish.training.backends.mlx_lora import MlxLoraBackend
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters
from burnish.training.rendering import Rendered
weights, parent, trained, nonsense, text, book = sys.argv[1:]
backend = MlxLoraBackend(Path(weights), Path(parent), Hyperparameters(), seed=0)
reply = backend.renderer.conversation(
    json.loads(text), (), {"role": "assistant", "content": "It is water."}, finished=True, max_tokens=99)
scores = {name: backend.logps([reply], policy)[0]
          for name, policy in {"trained": Path(trained), "bare": "bare", "start": "trained"}.items()}
try:
    backend.logps([reply], Path(nonsense))
except JobError as error:
    scores["refused"] = str(error)
scores["again"] = backend.logps([reply], "trained")[0]
drawn = [backend.sample([reply.prompt] * 2, "trained", [6, 6], seed=3) for _ in range(2)]
scores["sampled"] = [[[each.ids, each.finished] for each in both] for both in drawn]
first = drawn[0][0]
scores["drawn"] = first.logps
scores["alone"] = backend.logps([Rendered(reply.prompt, first.ids)], "trained")[0]
scores["change"] = backend.weight_change(Path(trained))
others = [backend.renderer.conversation(
    json.loads(text), (), {"role": "assistant", "content": each}, finished=True, max_tokens=99)
    for each in ("It is a river.", book)]
scores["alike"] = backend.similarity([reply, *others]).tolist()
scores["ends"] = sorted(backend.renderer.end_ids)
both = [reply, others[1]]
teachers = backend.distributions(both, "bare")
scores["goes_on"] = [[each.ids, each.probabilities] for each in teachers]
rows = backend.logps(both, "bare")
taught = [Lesson("distil", (LessonReply(each, 1.0, 1.0, row, row, teacher),))
          for each, row, teacher in zip(both, rows, teachers)]
scores["taught"] = backend.step(taught, Hyperparameters(), 0.0)
print(json.dumps(scores))
"""

LONG_PROMPTS = """
import json, sys
from pathlib import Path
from burnish.training.backends.base import Lesson, LessonReply
from burnish.training.backends.mlx_lora import MlxLoraBackend
from burnish.training.job import Hyperparameters
from burnish.training.rendering import Rendered
weights, parent, texts = sys.argv[1:]
backend = MlxLoraBackend(Path(weights), Path(parent), Hyperparameters(), seed=0)
replies = [Rendered(tuple(prompt), tuple(reply)) for prompt, reply in json.loads(texts)]
rows = backend.logps(replies, "trained")
lessons = [Lesson("sft", (LessonReply(each, 1.0, 1.0, row, row),)) for each, row in zip(replies, rows)]
print(json.dumps([rows, backend.similarity(replies).tolist(), backend.step(lessons, Hyperparameters(), 0.0)]))
"""

FASTER = """
import json, sys
from pathlib import Path
import numpy as np
from burnish.adapters.convert.peft import read_peft
from burnish.training.backends.base import Lesson, LessonReply
from burnish.training.backends.mlx_lora import MlxLoraBackend
from burnish.training.job import Hyperparameters
weights, out, text = sys.argv[1:]
found = {}
for ratio in (1.0, 4.0):
    config = Hyperparameters(lora_plus_ratio=ratio, targets=("v_proj",), learning_rate=3e-3)
    backend = MlxLoraBackend(Path(weights), None, config, seed=0)
    reply = backend.renderer.conversation(
        json.loads(text), (), {"role": "assistant", "content": "It is water."}, finished=True, max_tokens=99)
    (row,) = backend.logps([reply], "bare")
    backend.step([Lesson("sft", (LessonReply(reply, 1.0, 1.0, row, row),))], config, 0.0)
    directory = Path(out) / str(ratio)
    directory.mkdir()
    backend.save(directory, "small")
    pairs = read_peft(directory).pairs
    found[ratio] = [sorted({name.rpartition(".")[2] for name in pairs}),
                    float(sum(np.abs(each.b).sum() for each in pairs.values())),
                    float(sum(np.abs(each.a).sum() for each in pairs.values()))]
print(json.dumps(found))
"""


def in_mlx(*arguments: str) -> str:
    """Run Python in the environment of MLX, where there is no torch; return what it printed."""
    environment = os.environ | MLX_ENVIRONMENT | {"PYTHONPATH": str(ROOM / "src")}
    return _run([str(MLX_PYTHON), *arguments], environment)


def in_torch(*arguments: str) -> str:
    return _run([sys.executable, *arguments], os.environ | {"PYTHONPATH": str(ROOM / "src")})


def _run(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout


@pytest.mark.parametrize("seed", range(2))
def test_every_objective_and_its_gradient_are_the_same_on_both(seed: int, tmp_path: Path) -> None:
    numbers = case(seed)
    numbers |= {name: array.astype(np.float32) for name, array in numbers.items() if array.dtype == float}
    np.savez(tmp_path / "in.npz", allow_pickle=False, **numbers)
    in_mlx("-c", OBJECTIVE, str(tmp_path / "in.npz"), str(tmp_path))
    config = Hyperparameters(kl_beta=0.1)
    for name, objective in LOSSES.items():
        found = np.load(tmp_path / f"{name}.npz")
        loss, gradient = run(objective, numbers, config)
        assert found["loss"] == pytest.approx(loss.item(), rel=1e-5), name
        assert found["gradient"] == pytest.approx(gradient.numpy(), rel=1e-4, abs=1e-6), name
    _, taught = run(LOSSES["distil"], numbers, config, of="student")
    assert np.load(tmp_path / "distil.npz")["taught"] == pytest.approx(taught.numpy(), rel=1e-4, abs=1e-6)
    sums = diagnose(batch(numbers), config, TorchFunctions)
    found = {name: float(value) for name, value in np.load(tmp_path / "sums.npz").items()}
    assert found == pytest.approx({name: float(each) for name, each in sums.items()}, rel=1e-4, abs=1e-6)


@pytest.fixture(scope="module")
def jobs(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobDirectory]:
    """One job, from a version that is in use already, run by each trainer."""
    folder = tmp_path_factory.mktemp("jobs")
    parent = write_peft(folder / "parent", random_lora(1, 8, strength=0.01), 8, lora_alpha=12)
    made = {}
    for name, python in (("torch", in_torch), ("mlx", in_mlx)):
        job = write_job(
            folder / name, Base(base, weights_digest(base), folder / "cache"), brief_samples(2, 0),
            parent_adapter=str(parent), hyperparameters=CONFIG,
        )  # fmt: skip
        python("-m", "burnish.training", "train", str(job.path))
        made[name] = job
    return made


def steps(job: JobDirectory) -> list[dict[str, float]]:
    return [json.loads(line) for line in job.metrics.read_text().splitlines()]


def test_a_job_leaves_the_same_files(jobs: dict[str, JobDirectory]) -> None:
    for job in jobs.values():
        check_adapter(job.adapter)
        result = job.result()
        assert (result.samples, result.good, result.bad, result.steps) == (2, 1, 1, STEPS)
    assert steps(jobs["mlx"])[0].keys() == steps(jobs["torch"])[0].keys()
    names = [sorted(path.name for path in job.path.iterdir()) for job in jobs.values()]
    assert names[0] == names[1]


def test_every_step_does_the_same(jobs: dict[str, JobDirectory]) -> None:
    for ours, theirs in zip(steps(jobs["mlx"]), steps(jobs["torch"]), strict=True):
        assert ours["tokens"] == theirs["tokens"]
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=2 * BF16)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=0.2)
        for name in ("kl_per_token", "good_shift", "bad_shift"):
            assert ours[name] == pytest.approx(theirs[name], abs=BF16), name
    assert steps(jobs["mlx"])[-1]["good_shift"] > 0 > steps(jobs["mlx"])[-1]["bad_shift"]


def test_the_adapters_are_the_same(jobs: dict[str, JobDirectory]) -> None:
    ours, theirs = read_peft(jobs["mlx"].adapter), read_peft(jobs["torch"].adapter)
    start = read_peft(jobs["mlx"].path.parent / "parent")
    assert (ours.alpha, ours.rank) == (theirs.alpha, theirs.rank) == (12, 8)
    assert ours.pairs.keys() == theirs.pairs.keys()
    apart, moved = [], []
    for module, lora in ours.pairs.items():
        apart.append(np.abs(lora.b - theirs.pairs[module].b).mean())
        moved.append(np.abs(lora.b - start.pairs[module].b).mean())
    assert np.mean(apart) < np.mean(moved) / 5


# peft 0.21 asks transformers 5.23 for an attribute under its old name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
def test_replies_score_as_in_peft_under_every_policy(
    jobs: dict[str, JobDirectory], base: Path, tmp_path: Path
) -> None:
    job = jobs["mlx"]
    parent, messages = job.path.parent / "parent", context("Rain")
    other = {name.replace("layers.0", "layers.77"): each for name, each in random_lora(2, 8).items()}
    nonsense = write_peft(tmp_path / "nonsense", other, 8)
    said = in_mlx("-c", SCORES, *map(str, (base, parent, job.adapter, nonsense)), json.dumps(messages), BOOK)
    found = json.loads(said.splitlines()[-1])
    assert "no linear layer model.layers.77" in found.pop("refused")
    assert found.pop("again") == found["start"], "what was refused left no trace"
    (once, again), ends = found.pop("sampled"), found.pop("ends")
    assert found.pop("drawn") == pytest.approx(found.pop("alone"), abs=0.05)
    assert once == again, "the same seed draws the same"
    for ids, finished in once:
        assert 1 <= len(ids) <= 6
        assert finished == (ids[-1] in ends)
        assert not {*ends} & {*ids[:-1]}

    theirs = TorchPeftBackend(base, parent, Hyperparameters(), seed=0)
    assert found.pop("change") == pytest.approx(theirs.weight_change(job.adapter), rel=1e-2)
    texts = "It is water.", "It is a river.", BOOK
    replies = ({"role": "assistant", "content": text} for text in texts)
    spoken = [
        theirs.renderer.conversation(messages, (), reply, finished=True, max_tokens=99) for reply in replies
    ]
    assert np.array(found.pop("alike")) == pytest.approx(theirs.similarity(spoken), abs=BF16)

    both = [spoken[0], spoken[2]]
    teachers = [Distribution(*(tuple(map(tuple, rows)) for rows in each)) for each in found.pop("goes_on")]
    for ours, reference in zip(teachers, theirs.distributions(both, "bare"), strict=True):
        for ids, probabilities, row, others in zip(*astuple(ours), *astuple(reference), strict=True):
            assert probabilities[-1] == pytest.approx(others[-1], abs=BF16)
            likely = dict(zip(ids, probabilities, strict=False))
            assert likely.get(row[0]) == pytest.approx(others[0], abs=BF16)
    rows = theirs.logps(both, "bare")
    lessons = [
        Lesson("distil", (LessonReply(each, 1.0, 1.0, row, row, teacher),))
        for each, row, teacher in zip(both, rows, teachers, strict=True)
    ]
    taught = theirs.step(lessons, Hyperparameters(), 0.0)
    ours = found.pop("taught")
    # A band that is narrower than bf16 rounds, and differences of two policies, which add up what it rounds.
    for name in ours.keys() - {"in_band_share", "implicit_reward", "good_shift", "kl_per_reply"}:
        assert ours[name] == pytest.approx(taught[name], rel=0.2, abs=BF16), name

    reply = {"role": "assistant", "content": "It is water."}
    tokens = Renderer(base).conversation(messages, (), reply, finished=True, max_tokens=99)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def logps(model: torch.nn.Module) -> NDArray[np.float32]:
        with torch.inference_mode():
            rows = model(torch.tensor([tokens.ids])).logits[0].log_softmax(-1)[len(tokens.prompt) - 1 : -1]
        return rows.gather(1, torch.tensor(tokens.reply)[:, None]).squeeze(1).numpy()

    assert found["bare"] == pytest.approx(logps(model), abs=EXACT)
    model = PeftModel.from_pretrained(model, parent, adapter_name="start")
    assert found["start"] == pytest.approx(logps(model), abs=EXACT)
    model.load_adapter(job.adapter, adapter_name="trained")
    model.set_adapter("trained")
    assert found["trained"] == pytest.approx(logps(model), abs=EXACT)
    assert len({tuple(row) for row in found.values()}) == 3


def test_lora_plus_and_the_choice_of_layers_are_as_in_torch(base: Path, tmp_path: Path) -> None:
    """B begins at zero, so its size is the length of the first step."""
    printed = in_mlx("-c", FASTER, str(base), str(tmp_path), json.dumps(context("Rain")))
    plain, plus = json.loads(printed).values()
    assert plain[0] == plus[0] == ["v_proj"]
    assert plus[1] == pytest.approx(4 * plain[1], rel=1e-3)
    assert plus[1] > 0
    assert plus[2] == pytest.approx(plain[2], rel=1e-6)


def test_long_prompts_count_as_on_torch(tmp_path: Path) -> None:
    """Two with the same beginning, another one and a short one, on the tiny model."""
    shape = tiny_shape("llama")
    gguf = tiny_base(tmp_path / "base.gguf", shape, tiny_model(shape))
    weights = prepared_weights(gguf, file_digest(gguf), tmp_path / "weights")
    config, parent = Hyperparameters(learning_rate=3e-3), tmp_path / "parent"
    torch_backend = TorchPeftBackend(weights, None, config, seed=0)
    plain = torch_backend.renderer.plain
    first, second = (plain(rule * 60) for rule in ("Always answer in three words. ", "Never speak of it. "))
    questions = [
        plain(question) for question in ("What is tea?", "What is that?", "And rain?", "What is tea?")
    ]
    prompts = [[*rule, *asked] for rule, asked in zip((first, second, first, []), questions, strict=True)]
    replies = [Rendered(tuple(prompt), tuple(plain("It is water."))) for prompt in prompts]
    rows = torch_backend.logps(replies, "bare")
    lessons = [
        Lesson("sft", (LessonReply(each, 1.0, 1.0, row, row),))
        for each, row in zip(replies, rows, strict=True)
    ]
    torch_backend.step(lessons, config, 0.0)
    parent.mkdir()
    torch_backend.save(parent, "tiny")
    texts = json.dumps([[each.prompt, each.reply] for each in replies])
    scored, alike, metrics = json.loads(in_mlx("-c", LONG_PROMPTS, str(weights), str(parent), texts))
    expected = torch_backend.logps(replies, "trained")
    assert np.abs(np.array(scored) - np.array(expected)).mean() < BF16
    assert np.abs(np.array(alike) - torch_backend.similarity(replies)).max() < BF16
    assert metrics["grad_norm"] == pytest.approx(
        torch_backend.step(lessons, config, 0.0)["grad_norm"], rel=0.1
    )
