"""What the gate says of versions that are asked with tools at hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnish.adapters.gate import Evidence, SampledReply, Verdict, judge
from burnish.adapters.tool_calls import broken, left_in_text, readable
from tests.adapters.test_gate import HEALTHY, SHORTER, check, failed, likes, sampled, sensible

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


def asked_with_tools(new: list[SampledReply], old: list[SampledReply], to: Evidence = HEALTHY) -> Evidence:
    """Evidence with these replies to prompts with tools beside its own."""
    sides = ([replace(reply, prompt_id=f"t{i:02d}") for i, reply in enumerate(side)] for side in (new, old))
    candidate, incumbent = sides
    return replace(to, candidate=(*to.candidate, *candidate), incumbent=(*to.incumbent, *incumbent))


ONLY_CALLS = asked_with_tools([SOUND] * 12, [SOUND] * 12, to=replace(HEALTHY, candidate=(), incumbent=()))


def without_tools(verdict: Verdict) -> dict[str, Any]:
    return {each.name: each for each in verdict.checks if each.name not in ("tool_calls", "tool_use")}


# One call.


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("weather", '{"city": "Paris", "days": 3}'),
        ("weather", {"city": "Paris"}),
        ("weather", '{"city": null, "unknown": 1}'),
        ("time", "{}"),
        ("time", ""),
        ("time", None),
    ],
)
def test_a_call_of_an_offered_tool_with_what_it_requires_is_sound(name: str, arguments: Any) -> None:
    assert not broken(call(name, arguments), TOOLS)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("", "{}"),
        (None, "{}"),
        ("Time", "{}"),
        ("weather", ""),
        ("weather", "{}"),
        ("time", "null"),
        ("time", '"now"'),
        ("time", "{} {}"),
        ("time", "[" * 100_000),
        ("time", 7),
    ],
)
def test_any_other_call_is_broken(name: Any, arguments: Any) -> None:
    assert broken(call(name, arguments), TOOLS)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["function", "name", "arguments", "parameters", "required", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["function", "type"]), ANY, max_size=2)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OBJECTS, st.lists(OBJECTS, max_size=3))
def test_whatever_an_engine_and_a_client_send_is_judged_and_shown(
    made: dict[str, Any], tools: list[dict[str, Any]]
) -> None:
    assert broken(made, []), "without a tool there is nothing to call"
    assert broken(made, tools) in (True, False)
    assert readable(made).startswith("→ ")


@pytest.mark.parametrize(
    "text",
    [
        "Let me see.\n<tool_call>",
        "</tool_call>",
        "<|tool_call_start|>[weather()]",
        "<function=weather><parameter=city>Paris",
        "<|python_tag|>weather()",
        "[TOOL_CALLS]weather{}",
        ' {"name": "weather", "parameters": {}}\n',
    ],
)
def test_a_call_is_seen_in_a_text(text: str) -> None:
    assert left_in_text(text)


@pytest.mark.parametrize(
    "text",
    ["", "I would call a tool.", '{"name": "Ada"}', '[{"name": "weather"}]', '{"name": 1, "arguments": 2}'],
)
def test_other_texts_are_no_calls(text: str) -> None:
    assert not left_in_text(text)


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


# The check.


def test_without_tools_nothing_is_said_of_them() -> None:
    assert not any("tool" in each.name for each in judge(HEALTHY).checks)
    unasked = replace(HEALTHY, candidate=sampled(['{"name": "weather", "arguments": {}}', *sensible()[1:]]))
    assert not any("tool" in each.name for each in judge(unasked).checks)


def test_sound_calls_pass_and_are_counted() -> None:
    verdict = judge(asked_with_tools([SOUND] * 12, [SOUND] * 12))
    assert verdict.outcome == "passed"
    assert check(verdict, "tool_calls").passed
    assert (
        check(verdict, "tool_calls").text == "broken or cut tool calls: 0 of 12 prompts with tools, before 0"
    )


@pytest.mark.parametrize("kind", list(BROKEN))
def test_a_version_that_breaks_its_calls_is_rejected_for_that_alone(kind: str) -> None:
    verdict = judge(asked_with_tools([BROKEN[kind]] * 12, [SOUND] * 12))
    assert (verdict.outcome, failed(verdict)) == ("rejected", {"tool_calls"})
    assert "broken or cut tool calls: 12 of 12 prompts with tools, before 0, too many more" in verdict.reason


@pytest.mark.parametrize("kind", list(BROKEN))
def test_what_the_version_before_breaks_as_well_is_not_held_against_it(kind: str) -> None:
    verdict = judge(asked_with_tools([BROKEN[kind]] * 12, [BROKEN[kind]] * 12))
    assert verdict.outcome == "passed"


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
    assert "too few to say that calls are sound" in found.text


# All else.


def test_calls_are_no_faulty_texts_and_change_no_mean() -> None:
    rated = replace(SHORTER, rated=likes(short=True))
    plain, both = judge(rated), judge(asked_with_tools([SOUND] * 12, [SOUND] * 12, to=rated))
    assert failed(both) == set()
    for name in ("preference_model", "length", "length_bias"):
        assert check(both, name) == check(plain, name)
    for name in ("near_empty", "repetitive", "cut", "refusals", "questions_back", "flattery", "markup"):
        assert ": 0 of 24, before 0" in check(both, name).text
    assert ": 0 of 12, before 0" in check(both, "off_topic").text


@pytest.mark.parametrize("kind", list(BROKEN))
def test_a_broken_call_is_one_fault_only(kind: str) -> None:
    plain = judge(asked_with_tools([SOUND] * 12, [SOUND] * 12))
    assert without_tools(judge(asked_with_tools([BROKEN[kind]] * 12, [SOUND] * 12))) == without_tools(plain)


@pytest.mark.parametrize("candidate_calls", [True, False])
def test_where_one_calls_and_the_other_answers_there_are_no_two_texts_to_compare(
    candidate_calls: bool,
) -> None:
    rated = replace(SHORTER, rated=likes(short=True))
    sides = [SOUND] * 12, [replace(IN_TEXT, text="In Paris? Great question!\n- warm\n- dry")] * 12
    verdict = judge(asked_with_tools(*(sides if candidate_calls else sides[::-1]), to=rated))
    assert verdict.outcome == "passed"
    for name in ("preference_model", "length", "length_bias"):
        assert check(verdict, name) == check(judge(rated), name)
    used = check(verdict, "tool_use")
    assert used.text == (
        "it calls a tool at 12 of 12 prompts with tools, before at 0, more than chance explains"
        if candidate_calls
        else "it calls a tool at 0 of 12 prompts with tools, before at 12, fewer than chance explains"
    )
    assert used.kind == "reported"


def test_nothing_at_all_in_place_of_a_call_is_a_near_empty_reply() -> None:
    verdict = judge(asked_with_tools([replace(IN_TEXT, text="")] * 12, [SOUND] * 12))
    assert failed(verdict) == {"near_empty"}


def test_text_with_tools_at_hand_is_judged_as_text_but_not_by_its_topic() -> None:
    elsewhere = replace(IN_TEXT, text="Done; both files hold what you wanted.")
    assert judge(asked_with_tools([elsewhere] * 12, [IN_TEXT] * 12)).outcome == "passed"
    loop = replace(IN_TEXT, text="In Paris, in Paris, " * 20, finished=False)
    assert failed(judge(asked_with_tools([loop] * 12, [IN_TEXT] * 12))) == {"repetitive", "cut"}


def test_an_agent_that_only_calls_is_judged_by_its_calls() -> None:
    verdict = judge(ONLY_CALLS)
    assert verdict.outcome == "passed"
    assert check(verdict, "length").text == "no prompt was answered in text by both versions"


def test_a_distance_that_could_not_be_measured_is_left_to_the_user() -> None:
    verdict = judge(replace(ONLY_CALLS, kl_per_token=None))
    assert verdict.outcome == "undecided"
    assert "no reply could be scored" in verdict.reason


# Side by side.


def test_a_call_is_shown_beside_the_one_that_broke() -> None:
    broken_one = replace(BROKEN["no JSON"], text="Let me look.")
    verdict = judge(asked_with_tools([broken_one] * 12, [SOUND] * 12))
    shown = next(each for each in verdict.examples if each.kind == "fault")
    assert shown.why == "one of the broken or cut tool calls"
    assert shown.before == '→ weather(city="Paris")'
    assert shown.after == "Let me look.\n→ weather({city: Paris})"


def test_what_the_engine_said_instead_is_shown() -> None:
    verdict = judge(asked_with_tools([BROKEN["unreadable"]] * 12, [SOUND] * 12))
    shown = next(each for each in verdict.examples if each.kind == "fault")
    assert "could make no answer of it" in shown.after
    assert "Failed to parse input at pos 3" in shown.after


def test_long_calls_are_cut_like_long_texts() -> None:
    long = replace(SOUND, calls=(call(arguments=json.dumps({"city": "x" * 9000})),))
    verdict = judge(replace(asked_with_tools([long] * 12, [long] * 12)))
    assert all(len(each.after) <= 500 for each in verdict.examples)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
