"""The shapes that a dataset or a trace comes in: all of what was said is read, and nothing that nobody said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnish.parts.datasets.importing import FileRecords, read_files
from burnish.terminal.errors import WrongUsage
from tests.parts.datasets.exports import chat_of_open_webui, langfuse, lines
from tests.parts.datasets.test_foreign import answers, read, said, texts, whole

ASKED = {"role": "user", "content": "Where?"}
BRIEF = {"role": "system", "content": "Be brief."}
NORTH = {"role": "assistant", "content": "North."}
SOUTH = {"role": "assistant", "content": "South."}
THOUGHT = (
    '<details type="reasoning" done="true" duration="4">\n'
    "<summary>Thought for 4 seconds</summary>\n{}\n</details>\n"
)
TOOL = (
    '<details type="tool_calls" done="true" id="{0}" name="look" arguments="&quot;{{\\&quot;at\\&quot;: 1}}&quot;" '
    'result="&quot;{1}&quot;" files="">\n<summary>Tool Executed</summary>\n</details>\n'
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.jsonl"


def roles(answer: dict[str, Any]) -> str:
    return " ".join(message["role"][0] for message in answer["messages"])


# -- Open WebUI --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text", "thoughts", "context"),
    [
        (
            THOUGHT.format("&gt; Tea &amp; more\n&gt; is asked."),
            "A drink.",
            "Tea & more\nis asked.",
            "s u a u",
        ),
        (THOUGHT.format("> One") + TOOL.format("c1", "hot"), "A drink.", None, "s u a u a t"),
        (TOOL.format("c1", "hot") + "Hm.\n" + TOOL.format("c2", "wet"), "A drink.", None, "s u a u a t a t"),
        (THOUGHT.format("> see </details> there"), "A drink.", "see </details> there", "s u a u"),
        (
            '<details type="code_interpreter" done="true" output="&quot;4&quot;">\n<summary>Analyzed</summary>\n'
            "```python\n2 + 2\n```\n</details>\n",
            "A drink.",
            None,
            "s u a u a t",
        ),
        ("<details>\n<summary>More</summary>\nHot.\n</details>\n", None, None, "s u a u"),
        ('```html\n&lt;details type="x"&gt;\n```\n', None, None, "s u a u"),
    ],
    ids=["thoughts", "tool", "two-tools", "a-tag-in-thoughts", "code", "own-details", "escaped"],
)
def test_blocks_of_open_webui_are_no_answer(
    path: Path, content: str, text: str | None, thoughts: str | None, context: str
) -> None:
    chat = chat_of_open_webui(1)
    chat["chat"]["history"]["messages"]["m4"]["content"] = content + "A drink."
    (answer,) = answers(read(path, chat))
    assert answer["reply"]["content"] == (text or content + "A drink.")
    assert (answer["reply"].get("reasoning_content"), roles(answer)) == (thoughts, context)


def test_a_tool_in_an_answer_of_open_webui_is_a_call_with_its_result(path: Path) -> None:
    chat = chat_of_open_webui(1)
    messages = chat["chat"]["history"]["messages"]
    messages["m4"]["content"] = "I look.\n" + TOOL.format("c1", "hot") + "It is hot."
    messages["m2"]["content"] = THOUGHT.format("> Hm") + "Hi!"
    (answer,) = answers(read(path, chat))
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    assert answer["messages"][2] == {"role": "assistant", "content": "Hi!", "reasoning_content": "Hm"}
    assert answer["messages"][4:] == (
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "hot"},
    )
    assert answer["reply"] == {"role": "assistant", "content": "It is hot."}


def test_an_answer_of_open_webui_that_was_cut_in_its_thoughts_is_empty(path: Path) -> None:
    chat = chat_of_open_webui(1)
    chat["chat"]["history"]["messages"]["m4"]["content"] = THOUGHT.format("> Hm").partition("</details>")[0]
    assert answers(read(path, chat))[0]["reply"]["content"] == ""


# -- traces ------------------------------------------------------------------------------------------------------------

CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "look", "args": {}}]}


@pytest.mark.parametrize(
    "prompt",
    [
        {
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Where?"}]}],
        },
        {
            "prompt": [{"role": "user", "content": [{"type": "text", "text": "Where?"}]}],
            "system": "Be brief.",
        },
        {"messages": [ASKED], "system": [{"type": "text", "text": "Be brief."}]},
        {
            "contents": [{"role": "user", "parts": [{"text": "Where?"}]}],
            "config": {"system_instruction": "Be brief."},
        },
        {
            "contents": [{"parts": [{"text": "Where?"}]}],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
        },
        {"args": [], "kwargs": {"messages": [ASKED], "system": "Be brief."}},
        {"args": ["Where?"], "kwargs": {"system_prompt": "Be brief."}},
        {"question": "Where?", "system": "Be brief."},
        {"messages": [BRIEF, ASKED], "system": "Be brief."},
    ],
    ids=["responses", "ai-sdk", "messages", "gemini-sdk", "gemini", "keywords", "positional", "own", "twice"],
)
def test_a_system_prompt_beside_the_messages_is_kept(path: Path, prompt: Any) -> None:
    trace, _, generation, *_ = langfuse()
    score = langfuse()[-1]
    (answer,) = answers(read(path, trace, generation | {"input": prompt}, score))
    context = [text if isinstance(text, str) else text[0]["text"] for text in texts(answer)]
    assert context == ["Be brief.", "Where?", "A drink."]


@pytest.mark.parametrize(
    "history",
    [
        [
            ASKED,
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "hot"},
        ],
        [
            ASKED,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "hot"}]},
        ],
        [
            ASKED,
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {}}],
            },
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "c1",
                        "toolName": "look",
                        "output": {"type": "text", "value": "hot"},
                    }
                ],
            },
        ],
        [ASKED, CALLED, {"role": "tool", "tool_call_id": "c1", "content": "hot"}],
    ],
    ids=["responses", "messages", "ai-sdk", "langchain"],
)
def test_calls_and_results_in_each_format(path: Path, history: Any) -> None:
    trace, _, generation, _, score = langfuse()
    (answer,) = answers(read(path, trace, generation | {"input": history}, score))
    asked, call, result = answer["messages"]
    assert (asked["content"], result["role"], result["content"]) == ("Where?", "tool", "hot")
    assert result["tool_call_id"] == call["tool_calls"][0]["id"] == "c1"
    assert call["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("output", "reply"),
    [
        (
            [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "North."}],
                },
            ],
            NORTH | {"reasoning_content": "Hm"},
        ),
        (
            {
                "object": "response",
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "North."}],
                    }
                ],
            },
            NORTH,
        ),
        (
            {
                "candidates": [
                    {
                        "content": {
                            "role": "model",
                            "parts": [{"text": "Hm", "thought": True}, {"text": "North."}],
                        }
                    }
                ]
            },
            NORTH | {"reasoning_content": "Hm"},
        ),
        (
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "North."}],
            },
            NORTH | {"reasoning_content": "Hm"},
        ),
        ({"text": "North.", "toolCalls": []}, NORTH),
        (
            {"text": "", "toolCalls": [{"toolCallId": "c", "toolName": "look", "input": {"at": 1}}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
                ],
            },
        ),
    ],
    ids=["items", "response", "gemini", "messages", "ai-sdk", "ai-sdk-call"],
)
def test_an_answer_in_each_format(path: Path, output: Any, reply: Any) -> None:
    trace, _, generation, _, score = langfuse()
    assert answers(read(path, trace, generation | {"output": output}, score))[0]["reply"] == reply


@pytest.mark.parametrize(
    "prompt",
    [
        {"input": [ASKED], "previous_response_id": "resp_1"},
        [{"type": "item_reference", "id": "msg_1"}, ASKED],
        {"messages": [ASKED], "system": {"prompt": 3}},
    ],
)
def test_a_prompt_of_which_a_part_is_missing_is_skipped(path: Path, prompt: Any) -> None:
    trace, _, generation, _, score = langfuse()
    found = read(path, trace, generation | {"input": prompt}, score)
    assert not found.lines and ("server" in found.problems[0].reason or "system" in found.problems[0].reason)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "look", "parameters": {}},
        {"name": "look", "input_schema": {}},
        {"functionDeclarations": [{"name": "look", "parameters": {}}]},
    ],
)
def test_tools_of_each_format(path: Path, tool: Any) -> None:
    trace, _, generation, _, score = langfuse()
    prompt = {"messages": [ASKED], "tools": [tool]}
    (answer,) = answers(read(path, trace, generation | {"input": prompt}, score))
    assert answer["params"]["tools"][0]["function"]["name"] == "look"


# -- datasets ----------------------------------------------------------------------------------------------------------


def weighted(reply: dict[str, Any], weight: int | None) -> dict[str, Any]:
    return reply if weight is None else reply | {"weight": weight}


@pytest.mark.parametrize(
    ("first", "last", "demonstrations"),
    [
        (0, 1, ["South."]), (0, None, ["South."]), (None, None, ["South."]), (1, 0, ["North."]),
        (1, 1, ["North.", "South."]), (0, 0, []), (None, 0, []),
    ],
)  # fmt: skip
def test_an_answer_of_weight_0_is_no_demonstration(
    path: Path, first: int | None, last: int | None, demonstrations: list[str]
) -> None:
    found = read(path, {"messages": [BRIEF, ASKED, weighted(NORTH, first), ASKED, weighted(SOUTH, last)]})
    assert sorted(answer["reply"]["content"] for answer in answers(found)) == demonstrations
    assert len(said(found)) == len(demonstrations)
    assert bool(found.problems) == (not demonstrations)
    assert all("weight" in problem.reason for problem in found.problems)


@pytest.mark.parametrize(
    "line",
    [
        {"prompt": "Where?", "chosen": [ASKED, NORTH], "rejected": [ASKED, SOUTH], "score_chosen": 8.0},
        {"chosen": [ASKED, NORTH], "rejected": [ASKED, SOUTH]},
        {"prompt": [BRIEF, ASKED], "chosen": [ASKED, NORTH], "rejected": [ASKED, SOUTH]},
        {"prompt": "Where?", "chosen": [BRIEF, ASKED, NORTH], "rejected": [BRIEF, ASKED, SOUTH]},
        {"prompt": [BRIEF], "chosen": [ASKED, NORTH], "rejected": [ASKED, SOUTH]},
        {
            "input": {"messages": [ASKED], "tools": [], "parallel_tool_calls": True},
            "preferred_output": [NORTH],
            "non_preferred_output": [SOUTH],
        },
        {
            "conversations": [{"from": "human", "value": "Where?"}],
            "chosen": {"from": "gpt", "value": "North."},
            "rejected": {"from": "gpt", "value": "South."},
        },
        {"instruction": "Where?", "input": "", "chosen": "North.", "rejected": "South."},
        {"prompt": "Where?", "chosen": "North.", "rejected": "South."},
    ],
    ids=[
        "ultrafeedback",
        "implicit",
        "with-system",
        "system-inside",
        "system-apart",
        "openai",
        "sharegpt",
        "alpaca",
        "texts",
    ],
)
def test_pairs_of_each_shape(path: Path, line: Any) -> None:
    found = read(path, line)
    (preference,) = said(found)
    pair = {answer["id"]: answer for answer in answers(found)}
    good, bad = pair[preference["completion_id"]], pair[preference["preferred_over"]]
    assert (found.format, good["reply"], bad["reply"]) == ("dpo", NORTH, SOUTH)
    system = ["Be brief."] if "Be brief." in json.dumps(line) else []
    assert [message["content"] for message in good["messages"]] == [*system, "Where?"]
    assert good["messages"] == bad["messages"]


@pytest.mark.parametrize(
    ("label", "reward"), [(1, 1.0), (0, -1.0), (0.0, -1.0), (True, 1.0), ("true", None), (2, None)]
)
@pytest.mark.parametrize(
    "shape", [{"prompt": "Where?", "completion": "North."}, {"messages": [ASKED, NORTH]}]
)
def test_labels_of_kto(path: Path, label: Any, reward: float | None, shape: dict[str, Any]) -> None:
    found = read(path, shape | {"label": label})
    assert [rating["reward"] for rating in said(found)] == ([] if reward is None else [reward])
    assert (found.format, bool(found.problems)) == ("kto", reward is None)


TURNS = [{"from": "human", "value": "Where?"}, {"from": "gpt", "value": "North."}]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"conversations": [{"from": "system", "value": "x"}, *TURNS]}, ["x", "Where?", "North."]),
        ({"conversations": TURNS, "system": "x"}, ["x", "Where?", "North."]),
        ({"conversations": [*TURNS, TURNS[0], TURNS[1] | {"weight": 0}]}, None),
        ({"instruction": "Say where.", "input": "It", "output": "North."}, ["Say where.\n\nIt", "North."]),
        ({"instruction": "Say.", "input": "", "output": "North.", "system": "x"}, ["x", "Say.", "North."]),
        ({"instruction": "Say.", "output": "North.", "history": [["a", "b"]]}, ["a", "b", "Say.", "North."]),
        ({"instruction": "Say.", "output": "North.", "history": "a"}, None),
        ({"messages": [ASKED, NORTH], "system": "x"}, ["x", "Where?", "North."]),
    ],
)
def test_sharegpt_and_alpaca(path: Path, line: Any, expected: list[str] | None) -> None:
    found = read(path, line)
    assert found.format == "sft"
    assert [texts(answer) for answer in answers(found)] == ([expected] if expected else [])
    assert bool(found.problems) == (expected is None)


def test_functions_of_openai_s_older_files_are_tools(path: Path) -> None:
    function = {"name": "look", "parameters": {}}
    (answer,) = answers(read(path, {"messages": [ASKED, NORTH], "functions": [function]}))
    assert answer["params"]["tools"] == ({"type": "function", "function": function},)


# -- several files -----------------------------------------------------------------------------------------------------


def read_all(folder: Path, **files: list[Any]) -> FileRecords:
    return whole(read_files([lines(folder / name, *objects) for name, objects in files.items()], None, {}))


def test_several_files_are_told_apart_one_by_one(tmp_path: Path) -> None:
    pair = {"prompt": "Where?", "chosen": "North.", "rejected": "South."}
    trace, first, last, _, score = langfuse()
    found = read_all(
        tmp_path, dpo=[pair, pair | {"prompt": "When?"}], odd=[{"a": 1}], sft=[{"messages": [ASKED, NORTH]}],
        traces=[trace, first, last], scores=[score],
    )  # fmt: skip
    assert found.format == "dpo, sft, langfuse"
    assert sorted(str(rating["reward"]) for rating in said(found)) == ["1.0", "1.0", "None", "None"]
    assert [problem.place for problem in found.problems] == ["odd, all lines"]
    assert found.left_out == {"generations and traces without a score": 1}


def test_files_of_which_none_is_known_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="--format"):
        read_all(tmp_path, odd=[{"a": 1}], even=[{"b": 1}])
