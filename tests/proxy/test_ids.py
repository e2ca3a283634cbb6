"""Ids sort by time and never repeat."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from burnish.proxy.ids import completion_id, continue_after, conversation_id, feedback_id, run_id

SHAPE = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def test_each_kind_has_its_prefix_and_26_characters():
    for made, prefix in (
        (completion_id(), "cmpl_"),
        (feedback_id(), "fb_"),
        (run_id(), "run_"),
        (conversation_id(completion_id()), "conv_"),
    ):
        assert made.startswith(prefix)
        assert SHAPE.fullmatch(made.removeprefix(prefix))


def test_ids_sort_in_the_order_they_were_made():
    ids = [completion_id() for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_of_different_kinds_compare_by_time_behind_the_prefix():
    earlier = feedback_id()
    later = run_id()
    assert earlier.removeprefix("fb_") < later.removeprefix("run_")


def test_the_first_characters_are_the_time():
    milliseconds = 0
    for character in completion_id().removeprefix("cmpl_")[:10]:
        milliseconds = milliseconds * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character)
    assert abs(milliseconds / 1000 - time.time()) < 60


def test_threads_never_get_the_same_id():
    with ThreadPoolExecutor(4) as threads:
        made = threads.map(lambda _: [completion_id() for _ in range(2000)], range(4))
    assert len({each for ids in made for each in ids}) == 8000


def test_ids_go_on_after_one_of_an_earlier_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("burnish.proxy.ids._latest", 0)
    ahead = "cmpl_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
    try:
        continue_after(ahead)
        assert ahead < completion_id()
        continue_after("")
        continue_after("cmpl_0")
        assert ahead < completion_id()
    finally:
        monkeypatch.undo()
