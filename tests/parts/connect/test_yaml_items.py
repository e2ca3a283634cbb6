"""YAML as lines: our item goes first into a list, and out of it again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from burnish.parts.connect.yaml_items import YamlItem, scalar, without_item

LINES = ("- name: burnish", "  url: http://127.0.0.1:8787/v1")
OURS = {"name": "burnish", "url": "http://127.0.0.1:8787/v1"}
AT_TOP = YamlItem(Path("list.yaml"), LINES)
BELOW_KEY = YamlItem(Path("config.yaml"), LINES, key="models", head="name: Local\n")

THEIRS = "- name: other\n  # why not\n  url: x\n"


@pytest.mark.parametrize("text", ["", "# none yet\n", THEIRS, f"# mine\n\n{THEIRS}", THEIRS.rstrip()])
def test_an_item_goes_before_those_of_a_list(text: str):
    made = AT_TOP.made(text)
    assert yaml.safe_load(made) == [OURS, *(yaml.safe_load(text) or [])]
    assert set(text.splitlines()) <= set(made.splitlines())
    assert yaml.safe_load(without_item(made, text, made)) == yaml.safe_load(text)


KEYED = ["", "name: Mine", "models: # none yet\n", f"models:\n{THEIRS}name: Mine\n"]
KEYED += ["models:\n\n    # mine\n    - name: other\n\nname: Mine\n"]
KEYED += ["name: Mine\nmodels:\n  - name: other\nrules:\n  - name: burnish\n"]


@pytest.mark.parametrize("text", KEYED)
def test_an_item_goes_below_a_key(text: str):
    made = BELOW_KEY.made(text)
    before = yaml.safe_load(text) or {}
    assert yaml.safe_load(made) == {**before, "models": [OURS, *(before.get("models") or [])]}
    assert yaml.safe_load(without_item(made, text, made)) == yaml.safe_load(text)


def test_a_new_file_has_a_head():
    assert yaml.safe_load(BELOW_KEY.made(None)) == {"name": "Local", "models": [OURS]}
    assert yaml.safe_load(AT_TOP.made(None)) == [OURS]


REFUSED = ["models: []\n", "models: {a: 1}\n", "models:\n  a: 1\n", "models: *them\n"]


@pytest.mark.parametrize(
    ("item", "text", "why"),
    [*((BELOW_KEY, text, "models") for text in REFUSED), (AT_TOP, "name: Mine\n", "list")],
)
def test_what_is_no_list_or_written_in_another_way_is_refused(item: YamlItem, text: str, why: str):
    with pytest.raises(ValueError, match=why):
        item.made(text)


OTHERS = st.lists(st.sampled_from(["- name: a\n", "- name: b\n", "# c\n", "\n"]))


@given(OTHERS, st.integers(0, 8), st.integers(0, 8))
def test_what_others_wrote_since_stays(theirs: list[str], at: int, other: int):
    before = "".join(theirs)
    made = AT_TOP.made(before)
    lines = made.splitlines(keepends=True)
    later = [each for each in (at, other) if each == 0 or each >= len(LINES)]
    for index in sorted(later, reverse=True):
        lines.insert(index, "- name: later\n")
    rest = yaml.safe_load(without_item("".join(lines), before, made)) or []
    names = ["later"] * len(later) + [line[-2] for line in theirs if "name" in line]
    assert sorted(each["name"] for each in rest) == sorted(names)


def test_what_is_no_longer_as_it_was_put_there_is_named():
    made = AT_TOP.made(THEIRS)
    with pytest.raises(ValueError, match="by hand:\n- name: burnish"):
        without_item(made.replace("8787", "8788"), THEIRS, made)


@pytest.mark.parametrize("before", [None, "", "name: Mine\n", "models:\n"])
def test_others_that_joined_the_list_stay_in_it(before: str | None):
    made = BELOW_KEY.made(before)
    joined = made + ("  " if before != "models:\n" else "") + "- name: later\n"
    rest = yaml.safe_load(without_item(joined, before or "", made))
    assert rest["models"] == [{"name": "later"}]
    assert (yaml.safe_load(before or "") or {}).items() <= (rest | {"models": None}).items()


@pytest.mark.parametrize(
    "text", ["name: Mine\nmodels:\n  - name: other\n", "models:\n- name: other\n", "name: Mine\n"]
)
def test_an_item_is_found_in_what_a_writer_of_yaml_makes_of_the_file(text: str):
    made = BELOW_KEY.made(text)
    parsed = yaml.safe_load(made)
    parsed["models"].append({"name": "later"})
    anew = yaml.safe_dump(parsed, sort_keys=False)
    rest = yaml.safe_load(without_item(anew, text, made))
    assert rest["models"] == [*(yaml.safe_load(text).get("models") or []), {"name": "later"}]


PLAIN, ODD = ("default", "sk-a_b.c", "qwen:7b"), ("a: b", "a #b", "", "-", "a:", '"', "ä", "a\nb")


@pytest.mark.parametrize("text", [*PLAIN, *ODD, "True", "no", "1.5", "1e3"])
def test_a_text_stays_a_text(text: str):
    assert yaml.safe_load(f"x: {scalar(text)}") == {"x": text}
