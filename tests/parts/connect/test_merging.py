"""Our entries go in and out; what others wrote before or since stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from burnish.parts.connect.changes import Format, Json, Toml, units_of, with_entries, without_entries
from burnish.parts.connect.json_text import END

names = st.text("abcdefgh-_ .é", min_size=1, max_size=5)
scalars = st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
tables = st.recursive(
    st.dictionaries(names, scalars | st.lists(scalars, max_size=3), max_size=4),
    lambda inner: st.dictionaries(names, inner | scalars, max_size=4),
    max_leaves=8,
)
paths = st.lists(names, min_size=1, max_size=3).map(tuple)
entries = st.lists(
    st.tuples(paths, scalars | st.dictionaries(names, scalars, max_size=2)), max_size=4
).filter(lambda found: not any(a is not b and a[: len(b)] == b for a, _ in found for b, _ in found))

CODEX = """\
# My settings
model = "gpt-5"   # the good one
approval_policy = "never"

[projects."/home/me/src"]
trust_level = "trusted"

[model_providers.other]   # a spare
name = "other"
"""
OURS = [
    (("model",), "default"),
    (("model_provider",), "burnish"),
    (("model_providers", "burnish", "name"), "burnish"),
    (("model_providers", "burnish", "base_url"), "http://127.0.0.1:8787/v1"),
]
HOOK = {"matcher": "rl", "hooks": [{"type": "command", "command": "burnish hook"}]}


@pytest.mark.parametrize("how", [Json(), Toml()], ids=["json", "toml"])
@given(settings=tables, ours=entries, theirs=entries)
def test_taken_out_again_leaves_what_was_there_and_what_came_since(
    how: Format, settings: dict[str, Any], ours: Any, theirs: Any
):
    before = json.dumps(settings, indent=2) if how.name == "JSON" else tomlkit.dumps(settings)
    try:
        after = with_entries(how, before, ours)
    except ValueError:
        return  # something of theirs stands where ours should
    assert with_entries(how, after, ours) == after, "twice is once"
    assert how.parse(without_entries(how, after, before, after)) == how.parse(before)
    taken = {path[:depth] for path, _ in ours for depth in range(1, len(path) + 1)}
    foreign = [(path, value) for path, value in theirs if path[:1] not in {each[:1] for each in taken}]
    try:
        since = with_entries(how, after, foreign)
        alone = with_entries(how, before, foreign)
    except ValueError:
        return
    assert how.parse(without_entries(how, since, before, after)) == how.parse(alone)


def test_comments_and_order_of_toml_stay():
    after = with_entries(Toml(), CODEX, OURS)
    for line in CODEX.splitlines():
        assert line.replace('"gpt-5"', '"default"') in after.splitlines()
    edited = after.replace("never", "on-request") + '\n[projects."/tmp"]\ntrust_level = "untrusted"\n'
    rest = without_entries(Toml(), edited, CODEX, after)
    assert 'model = "gpt-5"   # the good one' in rest
    assert 'approval_policy = "on-request"' in rest
    assert "burnish" not in rest
    trusted = {name: each["trust_level"] for name, each in Toml().parse(rest)["projects"].items()}
    assert trusted == {"/home/me/src": "trusted", "/tmp": "untrusted"}


def test_an_element_stands_beside_those_of_others_and_is_found_again():
    theirs, later = {"matcher": "x", "hooks": []}, {"matcher": "later"}
    before = json.dumps({"hooks": [theirs]})
    after = with_entries(Json(), before, [(("hooks", END), HOOK)])
    assert json.loads(after) == {"hooks": [theirs, HOOK]}
    moved = json.dumps({"hooks": [HOOK, theirs, later]})
    assert json.loads(without_entries(Json(), moved, before, after)) == {"hooks": [theirs, later]}


def test_what_somebody_changed_since_is_theirs():
    before = '{"env": {"A": "theirs"}}'
    after = with_entries(Json(), before, [(("env", "A"), "ours"), (("env", "B"), "ours")])
    edited = after.replace('"A": "ours"', '"A": "new"')
    assert json.loads(without_entries(Json(), edited, before, after)) == {"env": {"A": "new"}}


def test_a_table_of_ours_goes_with_what_the_agent_wrote_into_it_and_not_with_what_somebody_changed():
    ours = [(("providers", "burnish"), {"settings": {"url": "u"}, "at": "then"})]
    before = '{"providers": {"other": {}}}'
    after = with_entries(Json(), before, ours)
    used = after.replace('"url": "u"', '"url": "u", "seen": true')
    assert json.loads(without_entries(Json(), used, before, after, units_of(ours))) == json.loads(before)
    changed = used.replace('"u"', '"elsewhere"')
    rest = json.loads(without_entries(Json(), changed, before, after, units_of(ours)))
    assert rest["providers"]["burnish"] == {"settings": {"url": "elsewhere", "seen": True}}
