"""Comments with a condition: which of a user's other prompts they aren't about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from burnish.training.anchors import against_comments
from burnish.training.backends.base import Lesson, Logps
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.checkpoint import Checkpoint
from burnish.training.comments import conditional
from burnish.training.conditions import MIXED, NOT_SEEN, NOTHING_UNRATED, unmet
from burnish.training.dataset import LeftOut, Run
from burnish.training.job import Hyperparameters, JobDirectory, Sample, UnratedPrompt
from tests.support.jobs import job_spec, sample
from tests.training.test_anchors import wanted

COMMANDS = (
    "Which command lists all files?",
    "How do I delete a folder in the shell?",
    "What is the command to show free disk space?",
    "How do I find out my IP address on Linux?",
    "Which shell command counts the lines of a file?",
    "How do I rename a file in the terminal?",
)
OTHERS = (
    "Explain how photosynthesis works.",
    "Write an essay on the French Revolution.",
    "Why do leaves turn red in autumn?",
    "Tell me about the history of Rome.",
    "What is a nosebleed?",
    "Who painted the Mona Lisa?",
)
CONDITIONAL = "Too long when I only ask for a command."


@pytest.fixture(scope="module")
def small_model(weights: Path) -> TorchPeftBackend:
    """Not to be trained."""
    return TorchPeftBackend(weights, None, Hyperparameters(), seed=0)


def criticised(*comments: str) -> list[Sample]:
    return [
        sample(number, good=False, comment=comment, messages=asked(question))
        for number, (question, comment) in enumerate(zip(COMMANDS, comments, strict=False))
    ]


def asked(question: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": question},)


def prompts(*questions: str) -> list[UnratedPrompt]:
    return [UnratedPrompt(completion_id=question, messages=asked(question)) for question in questions]


def run_with(
    backend: TorchPeftBackend, folder: Path, unrated: Sequence[UnratedPrompt] = (), **changes: Any
) -> Run:
    job = JobDirectory(folder / "job")
    job.write_job(spec := job_spec(objective="critique", **changes), [])
    job.write_unrated(unrated)
    return Run(job, spec, backend)


@pytest.mark.parametrize(
    ("comment", "has_condition"),
    [
        (CONDITIONAL, True),
        ("If I ask for code, leave out the text", True),
        ("Zu lang, wenn ich nur einen Befehl will", True),
        ("命令だけを聞いたとき長すぎる", True),
        ("too long", False),
        ("Whenever.", True),
        ("kürzer als das, bitte", False),
        ("I want iffy answers, not lifeless ones", False),
        ("", False),
        (None, False),
    ],
)
def test_a_condition_shows_in_its_words(comment: str | None, has_condition: bool) -> None:
    assert conditional(comment) is has_condition


def test_prompts_that_do_not_meet_a_condition_are_found(
    small_model: TorchPeftBackend, tmp_path: Path
) -> None:
    run, unrated = run_with(small_model, tmp_path), prompts(*COMMANDS[4:], *OTHERS)
    names = {prompt.completion_id for prompt in unmet(run, criticised(*[CONDITIONAL] * 4), unrated)}
    assert names <= {*OTHERS}
    assert len(names) >= len(OTHERS) - 1
    assert not run.left_out.notes


def test_a_comment_without_a_condition_is_about_all_prompts(
    small_model: TorchPeftBackend, tmp_path: Path
) -> None:
    run = run_with(small_model, tmp_path)
    assert unmet(run, criticised(*["too long"] * 4), prompts(*OTHERS)) == []
    assert not run.left_out.notes


@pytest.mark.parametrize(
    ("comments", "questions", "why"),
    [
        ([CONDITIONAL, CONDITIONAL, "too long"], OTHERS, MIXED),
        ([CONDITIONAL] * 4, (), NOTHING_UNRATED),
        (["It would be nice if you were brief."] * 4, (*COMMANDS[4:], *OTHERS[:2]), NOT_SEEN),
    ],
)
def test_a_condition_that_comes_to_nothing_is_said_and_not_quoted(
    small_model: TorchPeftBackend,
    tmp_path: Path,
    comments: Sequence[str],
    questions: Sequence[str],
    why: str,
) -> None:
    run = run_with(small_model, tmp_path)
    assert unmet(run, criticised(*comments), prompts(*questions)) == []
    (note,) = run.left_out.notes
    assert why in note
    assert not any(comment in note for comment in comments)
    checkpoint = Checkpoint(run.job)
    checkpoint.keep([], run.left_out)
    assert checkpoint.lessons(kept := LeftOut()) == []
    assert kept.notes == [note], "a run that goes on says it, too"


def anchors_of(run: Run, backend: TorchPeftBackend) -> list[Lesson]:
    samples = criticised(CONDITIONAL)
    return against_comments(run, samples, [wanted(backend, samples[0], "Type ls.")])


def test_unrated_prompts_that_do_not_meet_it_are_anchors_beside_requests(
    small_model: TorchPeftBackend, tmp_path: Path
) -> None:
    unrated = prompts(*COMMANDS[4:], *OTHERS)
    anchors = anchors_of(run_with(small_model, tmp_path, unrated), small_model)
    replies = [reply.tokens for anchor in anchors for reply in anchor.replies]
    texts = [small_model.renderer.text(reply.prompt) for reply in replies]
    assert any(OTHERS[0] in text for text in texts)
    assert not any(question in text for question in COMMANDS[4:] for text in texts)
    assert {1, 2} == {len(anchor.replies) for anchor in anchors}, "requests come between"
    assert all(anchor.rehearsed for anchor in anchors)


def test_a_single_unrated_prompt_is_an_anchor(small_model: TorchPeftBackend, tmp_path: Path) -> None:
    anchors = anchors_of(run_with(small_model, tmp_path, prompts(OTHERS[0])), small_model)
    texts = [small_model.renderer.text(anchor.replies[0].tokens.prompt) for anchor in anchors]
    assert any(OTHERS[0] in text for text in texts)


def test_what_an_earlier_version_learnt_stays_where_the_condition_is_not_met(
    weights: Path, tmp_path: Path
) -> None:
    config = Hyperparameters(learning_rate=1e-2)
    backend = TorchPeftBackend(weights, None, config, seed=0)
    backend.step([wanted(backend, criticised(CONDITIONAL)[0], "Ahoy!")], config, 0.0)
    run = run_with(backend, tmp_path, prompts(*OTHERS), parent_adapter="version 1")
    for anchor in anchors_of(run, backend):
        reply = anchor.replies[0]
        is_unrated = any(question in backend.renderer.text(reply.tokens.prompt) for question in OTHERS)
        (trained,), (bare,) = (backend.logps([reply.tokens], policy) for policy in ("trained", "bare"))
        assert (apart(reply.behaviour_logps, trained) < apart(reply.behaviour_logps, bare)) is is_unrated
        assert apart(reply.reference_logps, bare) < apart(reply.reference_logps, trained)


def apart(first: Logps, second: Logps) -> float:
    """In nats per token."""
    return fmean(abs(a - b) for a, b in zip(first, second, strict=True))
