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


COMMENTED = """\
// Mine.
{
  // the look
  "theme": "dark", // at night
  env: {
    'A': "it's // no comment", /* A */
  },
  "list": [1, 0x1F], // last
}
"""


@pytest.mark.parametrize(
    ("path", "content", "line"),
    [
        (("b",), 1, '  "list": [1, 0x1F], // last\n  "b": 1,\n}'),
        (("env", "B"), "x", '/* A */\n    "B": "x",\n  },'),
        (("theme",), "light", '  "theme": "light", // at night\n'),
        (("list", END), 2, "[1, 0x1F, 2], // last"),
    ],
)
def test_comments_stay_where_they_are(path: Any, content: Any, line: str):
    new = put(COMMENTED, path, content)
    assert line in new
    assert all(comment in new for comment in ("// Mine.", "// the look", "// at night", "/* A */", "// last"))
    if path != ("theme",):
        taken_out = (*path[:-1], 2) if path[-1] == END else path
        assert remove(new, taken_out) == COMMENTED


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{\n  "a": 1, // a\n  "b": 2, // b\n  "c": 3\n}', ("b",), '{\n  "a": 1, // a\n   // b\n  "c": 3\n}'),
        ('{\n  "a": 1, // a\n  "b": 2\n}', ("b",), '{\n  "a": 1 // a\n}'),
        ('{\n  // a\n  "a": 1\n}', ("a",), "{\n  // a\n}"),
        ('{"a": 1 /* a, b */, "b": 2}', ("b",), '{"a": 1 /* a, b */}'),
        ('{"a": 1, "b": 2,}', ("b",), '{"a": 1,}'),
        ('{"a": 1,}', ("a",), "{}"),
        ("[1, /* two */ 2]", (0,), "[ /* two */ 2]"),
    ],
)
def test_what_is_taken_out_leaves_the_comments(text: str, path: Any, expected: str):
    assert remove(text, path) == expected


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\ufeff{a: .5, $b: +1e2, 'c': -0x10,}", {"a": 0.5, "$b": 100.0, "c": -16}),
        (
            r"""{"a": "\x41\\x41\'\
"}""",
            {"a": "A\\x41'"},
        ),
        ("""{'a': 'say "x" \\"y\\"'}""", {"a": 'say "x" "y"'}),
        ("// nothing\n", {}),
        ("{ /* nothing */ }", {}),
    ],
)
def test_json5_is_read(text: str, content: Any):
    assert parse(text) == content
    assert parse(put(text, ("new",), [True])) == content | {"new": [True]}


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"a": 1 "b": 2}', '{"a": 1_0}', "{a b}", "nothing", '{"a": 1} }', "{'a\n': 1}", "[" * 9999],
)
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


@given(objects, st.lists(keys, min_size=1, max_size=3), values, st.booleans())
def test_no_comment_is_lost_or_moved_into_the_settings(
    settings: dict[str, Any], path: list[str], value: Any, commas: bool
):
    rows = json.dumps(settings, indent=2).split("\n")
    if commas:
        ends = [row.endswith(("[", "{", ",")) for row in rows[:-1]]
        rows = [row if end else f"{row}," for row, end in zip(rows, ends, strict=False)] + rows[-1:]
    text = "\n".join(f"{row} // {number}!" for number, row in enumerate(rows))
    try:
        new = put(text, path, value)
    except ValueError:
        return
    expected = json.loads(json.dumps(settings))
    here = expected
    for key in path[:-1]:
        here = here.setdefault(key, {})
    known = path[-1] in here
    here[path[-1]] = value
    assert parse(new) == expected
    del here[path[-1]]
    rest = remove(new, path)
    assert parse(rest) == expected
    if not known:
        assert all(f"// {number}!" in new and f"// {number}!" in rest for number in range(len(rows)))
