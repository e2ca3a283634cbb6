from __future__ import annotations

import json
from typing import Any

import pytest

from burnish.agents import find_action

ACTIONS = {"stick": 0, "hit": 1}
SYNONYMS = {"hit": ("draw", "take a card"), "stick": ("stand", "stay")}
STICK, HIT = 0, 1

REPLIES = {
    # words
    "hit": HIT,
    " Hit.\n": HIT,
    "HIT!": HIT,
    "**stick**": STICK,
    "I think I should hit.": HIT,
    "My sum is 20 and the dealer shows 10, so the best thing is to stand.": STICK,
    # synonyms
    "Draw": HIT,
    "I take\na  card": HIT,
    '{"move": "Take a card"}': HIT,
    # JSON: alone, fenced, in prose, nested, in a list, more than once
    '{"action": "hit"}': HIT,
    '```json\n{"action": "hit"}\n```': HIT,
    'Sure! Here is my move:\n```\n{"Action": "STICK"}\n```\nGood luck!': STICK,
    '{"thought": "17 is enough", "result": {"action": "stick"}}': STICK,
    '[{"action": "hit"}]': HIT,
    '{"action": "hit"} or rather {"action": "stick"}': STICK,
    '{"thought": "I do not want to hit", "action": "stick"}': STICK,
    '{"action": 1}': HIT,
    '{"action": 1.0}': HIT,
    '{"action": "one"}': HIT,
    '{"hint": "stick", "action": "hit"}': HIT,
    "{'action': 'hit'}": HIT,
    '{"action": "hit"': HIT,
    # labels: the last one counts
    "Action: hit": HIT,
    "**Action** -> `hit`": HIT,
    "My choice is to stay": STICK,
    "Let me think about hit and stick. Action: stick": STICK,
    "Action: hit. No wait, action: stick": STICK,
    "Action: 1": HIT,
    "action = zero": STICK,
    # figures and words for them, alone
    "1": HIT,
    "Zero.": STICK,
    # several candidates in prose, and negation
    "hit or stick": None,
    "I could hit, but I could also stand.": None,
    "I don't hit, I stand.": STICK,
    "I would rather stick than hit": STICK,
    "Stay instead of hit": STICK,
    "never hit": None,
    # thoughts: whole, opened by the prompt, cut off, of Mistral
    "<think>hit?</think>stick": STICK,
    "<think>Action: hit</think>\nI am at 20.": None,
    "I could hit. </think> Stick.": STICK,
    "Hit. <think>Or should I stick": HIT,
    '[THINK]{"action": "hit"}[/THINK]{"action": "stick"}': STICK,
    "<Thinking>hit</Thinking> stick <thinking>hit</thinking>": STICK,
    # nothing
    "": None,
    "   \n": None,
    "I have 1 ace": None,
    "white sticker": None,
    "{}": None,
    '{"action": "fold"}': None,
    '{"action": true}': None,
    '{"action": null}': None,
    "The capital of France is Paris.": None,
    "{" * 500: None,
    '{"a":' * 5000: None,
}


@pytest.mark.parametrize(("reply", "action"), REPLIES.items(), ids=lambda given: repr(given)[:60])
def test_a_reply_names_one_action_or_none(reply: str, action: int | None) -> None:
    assert find_action(reply, ACTIONS, SYNONYMS) == action


def test_the_longest_name_counts() -> None:
    ways: dict[str, Any] = {"go": "?", "go north": "n", "go north-west": "nw"}
    assert find_action("I go north-west.", ways) == "nw"
    assert find_action("I go north.", ways) == "n"


def test_a_value_may_be_anything_and_figures_name_only_whole_numbers() -> None:
    assert find_action("yes", {"yes": True, "no": False}) is True
    assert find_action("1", {"yes": True, "no": False}) is None
    assert find_action("Action: 2", {"up": 2.0}) is None


def test_actions_may_be_called_by_figures() -> None:
    assert find_action("I'd say 3", {"3": "c", "4": "d"}) is None, "prose is full of numbers"
    assert find_action("Answer: 3", {"3": "c", "4": "d"}) == "c"
    assert find_action(json.dumps({"answer": "four"}), {"3": "c", "4": "d"}) == "d"


def test_synonyms_of_an_unknown_action_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"synonyms are given for \['fold'\]"):
        find_action("hit", ACTIONS, {"fold": ("pass",)})
