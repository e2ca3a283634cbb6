from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from burnish.training.backends.base import Lesson, LessonReply
from burnish.training.dataset import batches
from burnish.training.rendering import Rendered


def items(good: int, bad: int) -> list[Lesson]:
    pulls = [1.0] * good + [-1.0] * bad
    replies = [LessonReply(Rendered((), (n,)), pull, 1.0, (), ()) for n, pull in enumerate(pulls)]
    return [Lesson("sft", (reply,)) for reply in replies]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 12), st.integers(0, 9))
def test_each_epoch_sees_each_sample_once(good: int, bad: int, size: int, seed: int):
    found = batches(items(good, bad), size, seed)
    numbers = [item.replies[0].tokens.reply[0] for batch in found for item in batch]
    assert sorted(numbers) == list(range(good + bad))
    assert all(found)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 12), st.integers(0, 9))
def test_classes_are_spread_over_the_batches(good: int, bad: int, size: int, seed: int):
    found = batches(items(good, bad), size, seed)
    shares = [sum(item.good for item in batch) for batch in found]
    fair = good / len(found)
    assert all(abs(share - fair) <= 2 for share in shares)


def test_the_default_run_has_good_and_bad_in_every_batch():
    for seed in range(50):
        for batch in batches(items(8, 24), 8, seed):
            assert {item.good for item in batch} == {True, False}


def test_batches_are_of_equal_size_and_repeat_by_seed():
    found = batches(items(13, 20), 8, seed=1)
    assert sorted(len(batch) for batch in found) == [6, 6, 7, 7, 7]
    assert found == batches(items(13, 20), 8, seed=1)
    assert found != batches(items(13, 20), 8, seed=2)


def test_two_good_replies_make_two_batches_at_most():
    assert len(batches(items(2, 30), 8, seed=0)) == 2
