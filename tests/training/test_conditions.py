"""Comments with a condition: which of a user's other prompts they aren't about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from burnish.training.anchors import against_comments
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.comments import conditional
from burnish.training.conditions import unmet
from burnish.training.dataset import Run
from burnish.training.job import Hyperparameters, JobDirectory, OtherPrompt, Sample
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


def prompts(*questions: str) -> list[OtherPrompt]:
    return [OtherPrompt(completion_id=question, messages=asked(question)) for question in questions]


def run_with(backend: TorchPeftBackend, folder: Path, others: Sequence[OtherPrompt] = ()) -> Run:
    job = JobDirectory(folder / "job")
    job.write_job(spec := job_spec(objective="critique"), [])
    job.write_others(others)
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
    run, others = run_with(small_model, tmp_path), prompts(*COMMANDS[4:], *OTHERS)
    names = {other.completion_id for other in unmet(run, criticised(*[CONDITIONAL] * 4), others)}
    assert names <= {*OTHERS}
    assert len(names) >= len(OTHERS) - 1
    assert not run.left_out.notes


@pytest.mark.parametrize("comments", [("too long",) * 4, (CONDITIONAL, CONDITIONAL, "too long")])
def test_a_comment_without_a_condition_is_about_all_prompts(
    small_model: TorchPeftBackend, tmp_path: Path, comments: tuple[str, ...]
) -> None:
    run = run_with(small_model, tmp_path)
    assert unmet(run, criticised(*comments), prompts(*OTHERS)) == []
    assert not run.left_out.notes


def test_a_condition_that_the_model_does_not_see_is_said(
    small_model: TorchPeftBackend, tmp_path: Path
) -> None:
    comment = "It would be nice if you were brief."
    run = run_with(small_model, tmp_path)
    assert unmet(run, criticised(*[comment] * 4), prompts(*COMMANDS[4:], *OTHERS[:2])) == []
    (note,) = run.left_out.notes
    assert comment in note


def test_where_a_condition_is_not_met_the_model_stays_the_base(
    small_model: TorchPeftBackend, tmp_path: Path
) -> None:
    run = run_with(small_model, tmp_path, prompts(*COMMANDS[4:], *OTHERS))
    samples = criticised(*[CONDITIONAL] * 4)
    learnt = [wanted(small_model, each, "Type ls.") for each in samples[:1]]
    anchors = against_comments(run, samples[:1], learnt)
    replies = [reply.tokens for anchor in anchors for reply in anchor.replies]
    texts = [small_model.renderer.text(reply.prompt) for reply in replies]
    assert any(OTHERS[0] in text for text in texts)
    assert not any(question in text for question in COMMANDS[4:] for text in texts)
    assert {len(anchor.replies) for anchor in anchors} == {1, 2}, "requests come between"
    assert all(anchor.rehearsed for anchor in anchors)
