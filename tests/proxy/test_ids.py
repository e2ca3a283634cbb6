"""Ids sort by time and never repeat."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from burnish.proxy.ids import completion_id, continue_after, conversation_id, feedback_id, run_id

SHAPE = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def test_each_kind_has_its_prefix_and_26_characters():
    made = (completion_id(), feedback_id(), run_id(), conversation_id(completion_id()))
    for each, prefix in zip(made, ("cmpl_", "fb_", "run_", "conv_"), strict=True):
        assert each.startswith(prefix)
        assert SHAPE.fullmatch(each.removeprefix(prefix))


def test_ids_sort_in_the_order_they_were_made():
    ids = [completion_id() for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_of_different_kinds_compare_by_time_behind_the_prefix():
    earlier, later = feedback_id(), run_id()
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
    for earlier in (ahead, "", "cmpl_0"):
        continue_after(earlier)
        assert ahead < completion_id()
