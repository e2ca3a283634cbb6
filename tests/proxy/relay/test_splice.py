from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.relay.outbound import append_members, splice_model

keys = st.text() | st.just("model")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)
rests = st.dictionaries(st.text(), json_values, max_size=5)
indents = st.sampled_from([None, 2])


@given(rests, st.text(), st.text(), indents, st.booleans())
def test_only_the_top_level_model_changes(
    rest: dict[str, Any], old: str, new: str, indent: int | None, ascii_only: bool
) -> None:
    request = {**rest, "model": old, "messages": [{"model": "inner", "content": '"model": "x"}{'}]}
    body = json.dumps(request, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert json.loads(splice_model(body, new)) == {**request, "model": new}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a","n":1}', b'{"model":"b","n":1}'),
        (b' { "n" : 1 , "model" :\n"a" } ', b' { "n" : 1 , "model" :\n"b" } '),
        (b'{"model":"a","model":"c"}', b'{"model":"b","model":"b"}'),
        (b'{"mod\\u0065l":"a"}', b'{"mod\\u0065l":"b"}'),
        (b'{"x":"model","model":"a"}', b'{"x":"model","model":"b"}'),
        (b'{"n":1}', b'{"model":"b","n":1}'),
        (b"{ }", b'{"model":"b" }'),
    ],
)
def test_every_other_byte_stays(body: bytes, expected: bytes) -> None:
    assert splice_model(body, "b") == expected


ours = st.dictionaries(st.text(), st.text() | st.lists(st.integers(-9, 9)), max_size=3)


@given(rests, ours, indents)
def test_appended_members_win(rest: dict[str, Any], ours: dict[str, Any], indent: int | None) -> None:
    request = {**rest, "model": "a"}
    body = json.dumps(request, indent=indent) + " "
    assert json.loads(append_members(body.encode(), tuple(ours.items()))) == request | ours
