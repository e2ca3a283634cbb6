"""Tool calls: which are broken, and what the gate decides for prompts that come with tools."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnish.gate import Evidence, SampledReply, Verdict, judge
from burnish.gate.replies import broken, left_in_text, readable
from tests.gate.test_gate import DAMAGE, HEALTHY, LIKED, check, decided, failed, sampled, sensible

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
TIME = {"type": "function", "function": {"name": "time"}}
TOOLS = (WEATHER, TIME)


def call(name: Any = "weather", arguments: Any = '{"city": "Paris"}') -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


SOUND = SampledReply("t", "How warm is it in Paris?", "", True, tools=TOOLS, calls=(call(),))
IN_TEXT = replace(SOUND, calls=(), text="In Paris it is warm.")
BROKEN = {
    "unknown tool": replace(SOUND, calls=(call("wether"),)),
    "no JSON": replace(SOUND, calls=(call(arguments="{city: Paris}"),)),
    "no object": replace(SOUND, calls=(call(arguments='["Paris"]'),)),
    "nothing required": replace(SOUND, calls=(call(arguments='{"town": "Paris"}'),)),
    "one of two": replace(SOUND, calls=(call(), call(None))),
    "in text": replace(IN_TEXT, text='<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}'),
    "bare": replace(IN_TEXT, text='{"name": "weather", "arguments": {"city": "Paris"}}'),
    "unreadable": replace(IN_TEXT, text="", error='{"error": {"message": "Failed to parse input at pos 3"}}'),
    "cut": replace(SOUND, calls=(call(arguments='{"city": "Par'),), finished=False),
}


def asked_with_tools(new: list[SampledReply], old: list[SampledReply], on: Evidence = HEALTHY) -> Evidence:
    """Evidence with these replies to prompts with tools beside its own."""
    sides = ([replace(reply, prompt_id=f"t{i:02d}") for i, reply in enumerate(side)] for side in (new, old))
    candidate, incumbent = sides
    return replace(on, candidate=(*on.candidate, *candidate), incumbent=(*on.incumbent, *incumbent))


ONLY_CALLS = asked_with_tools([SOUND] * 12, [SOUND] * 12, on=replace(HEALTHY, candidate=(), incumbent=()))


# One call.


@pytest.mark.parametrize(
    ("name", "arguments", "sound"),
    [
        ("weather", '{"city": "Paris", "days": 3}', True),
        ("weather", {"city": "Paris"}, True),
        ("weather", '{"city": null, "unknown": 1}', True),
        *(("time", arguments, True) for arguments in ("{}", "", None)),
        *((name, "{}", False) for name in ("", None, "Time", "weather")),
        ("weather", "", False),
        *(("time", arguments, False) for arguments in ("null", '"now"', "{} {}", "[" * 100_000, 7)),
    ],
)
def test_a_sound_call_names_a_tool_and_what_it_requires(name: Any, arguments: Any, sound: bool) -> None:
    assert broken(call(name, arguments), TOOLS) is not sound


KEYS = st.sampled_from(["function", "name", "arguments", "parameters", "required", "x"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["function", "type"]), ANY, max_size=2)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OBJECTS, st.lists(OBJECTS, max_size=3))
def test_whatever_is_sent_is_judged_and_shown(made: dict[str, Any], tools: list[dict[str, Any]]) -> None:
    assert broken(made, []), "without a tool there is nothing to call"
    assert broken(made, tools) in (True, False)
    assert readable(made).startswith("→ ")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Let me see.\n<tool_call>", True),
        ("</tool_call>", True),
        ("<|tool_call_start|>[weather()]", True),
        ("<function=weather><parameter=city>Paris", True),
        ("<|python_tag|>weather()", True),
        ("[TOOL_CALLS]weather{}", True),
        (' {"name": "weather", "parameters": {}}\n', True),
        ("", False),
        ("I would call a tool.", False),
        ('{"name": "Ada"}', False),
        ('[{"name": "weather"}]', False),
        ('{"name": 1, "arguments": 2}', False),
    ],
)
def test_a_call_that_the_engine_left_in_the_text_is_seen(text: str, seen: bool) -> None:
    assert left_in_text(text) is seen


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (call(arguments='{"city": "Zürich", "days": 3}'), '→ weather(city="Zürich", days=3)'),
        (call("time", ""), "→ time()"),
        (call(arguments='{"city": "Par'), '→ weather({"city": "Par)'),
        (call(None), '→ (no name)(city="Paris")'),
    ],
)
def test_a_call_can_be_read(made: dict[str, Any], shown: str) -> None:
    assert readable(made) == shown


# The gate.


def test_without_tools_there_is_no_check_of_them() -> None:
    unasked = replace(HEALTHY, candidate=sampled(['{"name": "weather", "arguments": {}}', *sensible()[1:]]))
    for evidence in (HEALTHY, unasked):
        assert not any("tool" in each.name for each in judge(evidence).checks)


@pytest.mark.parametrize("kind", list(BROKEN))
def test_more_broken_calls_than_before_reject_and_are_no_other_fault(kind: str) -> None:
    verdict = judge(asked_with_tools([BROKEN[kind]] * 12, [SOUND] * 12))
    assert decided(verdict) == ("rejected", {"tool_calls"})
    assert check(verdict, "tool_calls").value == 1
    sound = judge(asked_with_tools([SOUND] * 12, [SOUND] * 12))
    assert decided(sound) == ("passed", set())
    assert check(sound, "tool_calls").value == 0
    for one, other in zip(verdict.checks, sound.checks, strict=True):
        assert one == other or one.name in ("tool_calls", "tool_use")
    assert judge(asked_with_tools([BROKEN[kind]] * 12, [BROKEN[kind]] * 12)).outcome == "passed"


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 1), (3, 2), (5, 2), (8, 2), (12, 3)])
def test_how_many_more_broken_calls_are_tolerated(count: int, most: int) -> None:
    def rejected(times: int) -> bool:
        mixed = [BROKEN["no JSON"]] * times + [SOUND] * (count - times)
        return "tool_calls" in failed(judge(asked_with_tools(mixed, [SOUND] * count)))

    assert [rejected(times) for times in range(count + 1)] == [times > most for times in range(count + 1)]


def test_a_few_sound_calls_prove_nothing_and_hold_nothing_back() -> None:
    verdict = judge(asked_with_tools([SOUND] * 3, [SOUND] * 3))
    found = check(verdict, "tool_calls")
    assert (verdict.outcome, found.kind, found.passed) == ("passed", "reported", None)


def test_calls_are_not_faulty_texts_and_change_no_mean() -> None:
    plain, both = judge(LIKED), judge(asked_with_tools([SOUND] * 12, [SOUND] * 12, LIKED))
    assert failed(both) == set()
    for name in ("preference_model", "length", "length_bias"):
        assert check(both, name) == check(plain, name)
    for name in (*DAMAGE, "refusals", "questions_back", "flattery", "markup"):
        assert check(both, name).value == 0


@pytest.mark.parametrize("candidate_calls", [True, False])
def test_a_call_and_a_text_are_not_compared(candidate_calls: bool) -> None:
    sides = [SOUND] * 12, [replace(IN_TEXT, text="In Paris? Great question!\n- warm\n- dry")] * 12
    verdict = judge(asked_with_tools(*(sides if candidate_calls else sides[::-1]), LIKED))
    assert verdict.outcome == "passed"
    for name in ("preference_model", "length", "length_bias"):
        assert check(verdict, name) == check(judge(LIKED), name)
    used = check(verdict, "tool_use")
    assert (used.kind, used.value) == ("reported", 1.0 if candidate_calls else 0.0)
    assert ("more" if candidate_calls else "fewer") + " than chance" in used.text


@pytest.mark.parametrize(
    ("reply", "before", "failures"),
    [
        ({"text": ""}, SOUND, {"near_empty"}),  # neither a call nor a text
        ({"text": "Done; both files hold what you wanted."}, IN_TEXT, set()),  # its topic isn't judged
        ({"text": "In Paris, in Paris, " * 20, "finished": False}, IN_TEXT, {"repetitive", "cut"}),
    ],
)
def test_a_text_instead_of_a_call_is_a_text(
    reply: dict[str, Any], before: SampledReply, failures: set[str]
) -> None:
    assert failed(judge(asked_with_tools([replace(IN_TEXT, **reply)] * 12, [before] * 12))) == failures


def test_an_agent_that_only_calls_is_judged_by_its_calls() -> None:
    verdict = judge(ONLY_CALLS)
    assert (verdict.outcome, check(verdict, "length").value) == ("passed", None)
    unmeasured = judge(replace(ONLY_CALLS, kl_per_token=None))
    assert decided(unmeasured) == ("undecided", set())
    assert unmeasured.reason == check(unmeasured, "kl").text


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (replace(BROKEN["no JSON"], text="Let me look."), "Let me look.\n→ weather({city: Paris})"),
        (BROKEN["unreadable"], "Failed to parse input at pos 3"),
    ],
)
def test_a_call_is_shown_beside_the_one_that_broke(reply: SampledReply, shown: str) -> None:
    *_, fault = judge(asked_with_tools([reply] * 12, [SOUND] * 12)).examples
    assert (fault.kind, fault.before) == ("fault", '→ weather(city="Paris")')
    assert shown in fault.after


def test_long_calls_are_cut_like_long_texts() -> None:
    long = replace(SOUND, calls=(call(arguments=json.dumps({"city": "x" * 9000})),))
    verdict = judge(asked_with_tools([long] * 12, [long] * 12))
    assert all(len(each.after) <= 500 for each in verdict.examples)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
