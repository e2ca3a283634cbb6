"""JSON that somebody wrote: what is not ours stays as it was, to the character."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.parts.connect.json_text import END, parse, put, remove

SPREAD = """{
    "theme": "dark",   "empty": {},
    "env": {
        "A": "1"
    },
    "list": [1,2]
}
"""


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        ("", ("a",), 1, '{\n  "a": 1\n}\n'),
        ("{}", ("a", "b"), 1, '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"a":1}', ("b",), {"c": 2}, '{"a":1, "b": {"c": 2}}'),
        ('{"a":1,"b":2}', ("c",), 3, '{"a":1,"b":2,"c": 3}'),
        ('{"a":1,"a":2}', ("a",), 3, '{"a":1,"a":3}'),
        (SPREAD, ("theme",), "light", SPREAD.replace("dark", "light")),
        (SPREAD, ("env", "B"), "2", SPREAD.replace('"A": "1"', '"A": "1",\n        "B": "2"')),
        (SPREAD, ("list", END), 3, SPREAD.replace("[1,2]", "[1,2,3]")),
        (SPREAD, ("empty", "x"), 1, SPREAD.replace('"empty": {}', '"empty": {\n        "x": 1\n    }')),
        ('{\r\n\t"a": 1\r\n}', ("b",), [1], '{\r\n\t"a": 1,\r\n\t"b": [\r\n\t\t1\r\n\t]\r\n}'),
    ],
)
def test_a_member_is_set_as_its_neighbours_are_written(text: str, path: Any, value: Any, expected: str):
    assert put(text, path, value) == expected


@pytest.mark.parametrize(
    ("text", "path"), [('{"a": 1}', ("a", "b")), ('{"a": {}}', ("a", END)), ('{"a": [1]}', ("a", "b"))]
)
def test_other_things_in_the_way_are_refused(text: str, path: Any):
    with pytest.raises(ValueError, match="a isn't"):
        put(text, path, 1)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1,}', "// why\n{}", "\ufeff{}", "nothing"])
def test_what_is_no_plain_object_is_refused(text: str):
    with pytest.raises(ValueError):
        parse(text)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
keys = st.text(max_size=4)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)
objects = st.dictionaries(keys, values, max_size=4)
written = st.sampled_from(
    [{}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": False}]
)


@given(objects, written, st.lists(keys, min_size=1, max_size=3), values)
def test_what_is_set_is_said_and_taken_out_again_leaves_the_rest(
    settings: dict[str, Any], style: dict[str, Any], path: list[str], value: Any
):
    text = json.dumps(settings, **style)
    try:
        new = put(text, path, value)
    except ValueError:
        return  # something else stands in the way
    expected = json.loads(text)
    here = expected
    for key in path[:-1]:
        here = here.setdefault(key, {})
    known = path[-1] in here
    here[path[-1]] = value
    assert json.loads(new) == expected
    del here[path[-1]]
    assert json.loads(remove(new, path)) == expected
    if not known and len(path) == 1:
        assert remove(new, path) == text or not settings
