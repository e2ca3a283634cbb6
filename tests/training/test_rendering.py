from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.training.errors import JobError
from burnish.training.job import CONTINUED
from burnish.training.rendering import Rendered, Renderer, Unrenderable, flattened
from tests.support.jobs import Base

Message = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello"}]
REPLY = {"role": "assistant", "content": "Hi there."}
IM_START, IM_END = 1, 2
CONVERSATIONS: list[list[Message]] = [
    HELLO,
    [
        {"role": "system", "content": "Answer in one short sentence"},
        {"role": "user", "content": "Why is it dark?"},
    ],
    [
        {"role": "user", "content": "  spaces, newlines\n\n and ünïcödé 🙂 "},
        {"role": "assistant", "content": "Yes.\n"},
        {"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]},
    ],
]


def conversation(renderer: Renderer, messages: list[Message], reply: Message, **changes: Any) -> Rendered:
    return renderer.conversation(messages, (), reply, **{"finished": True, "max_tokens": 2048} | changes)


async def test_texts_are_tokenised_as_llama_cpp_does(renderer: Renderer, small: Base, tmp_path: Path):
    host = EmbeddedHost(small.gguf, base_model="smollm2", state_dir=tmp_path / "engine", threads=1)
    try:
        endpoint = await host.load(None)
        headers = {"authorization": f"Bearer {endpoint.api_key}"}

        async def ask(path: str, **body: Any) -> Any:
            async with session.post(endpoint.url + path, json=body) as response:
                assert response.status == 200, await response.text()
                return await response.json()

        async with aiohttp.ClientSession(headers=headers) as session:
            for messages in CONVERSATIONS:
                text = (await ask("/apply-template", messages=messages))["prompt"]
                found = await ask("/tokenize", content=text, add_special=True, parse_special=True)
                assert renderer.prompt(messages) == found["tokens"]
                reply = (await ask("/tokenize", content=REPLY["content"], add_special=False))["tokens"]
                assert list(conversation(renderer, messages, REPLY).reply) == [*reply, IM_END]
            usage = (await ask("/v1/chat/completions", messages=HELLO, max_tokens=1))["usage"]
            assert usage["prompt_tokens"] == len(renderer.prompt(HELLO))
    finally:
        await host.close()


def test_a_reply_ends_if_it_was_finished_even_an_empty_one(renderer: Renderer):
    assert conversation(renderer, HELLO, REPLY, finished=False).reply == tuple(renderer.plain("Hi there."))
    assert conversation(renderer, HELLO, {"role": "assistant", "content": ""}).reply == (IM_END,)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>", "a", " ", "\n", "0"]), max_size=8
    )
)
def test_written_special_tokens_stay_whole_text(weights: Path, renderer: Renderer, parts: list[str]):
    written = "".join(parts)
    clean = renderer.prompt([{"role": "user", "content": "x"}])
    found = renderer.prompt([{"role": "user", "content": written}])
    assert [found.count(special) for special in range(17)] == [clean.count(special) for special in range(17)]
    assert written in decoded(weights, found)
    said = REPLY | {"content": f"x{written}"}
    reply = conversation(renderer, HELLO, said, finished=False).reply
    assert decoded(weights, reply) == f"x{written}"
    assert not set(reply) & set(range(17))


def test_what_cannot_be_rendered_says_why(renderer: Renderer):
    with pytest.raises(Unrenderable, match=r"^about \d\d tokens, more than train.advanced.max_tokens \(30\)"):
        conversation(renderer, HELLO, REPLY, max_tokens=30)
    with pytest.raises(Unrenderable) as found:
        conversation(renderer, [{"role": "user", "content": "tea " * 3100}], REPLY, max_tokens=2048)
    assert found.value.why == "about 3,100 tokens, more than train.advanced.max_tokens (2,048)", (
        "they can be counted"
    )
    with pytest.raises(Unrenderable, match="chat template refuses"):
        conversation(renderer, [{"content": "no role"}], REPLY)


def test_content_lists_and_arguments_become_what_templates_want():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    read = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    assert flattened(message) == {"role": "assistant", "content": "", "tool_calls": [read]}
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]
    assert flattened({"role": "user", "content": parts})["content"] == "a\nb"


def test_tools_and_calls_are_written_by_the_template(weights: Path, tmp_path: Path):
    renderer = Renderer(_with_template(weights, tmp_path, TOOL_TEMPLATE))
    tools = [{"type": "function", "function": {"name": "weather", "description": "<|im_end|>"}}]
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    reply = {"role": "assistant", "content": "", "tool_calls": [call]}
    found = renderer.conversation(HELLO, tools, reply, finished=True, max_tokens=2048)
    assert '"name": "weather"' in decoded(weights, found.prompt)
    assert decoded(weights, found.reply[:-1]) == '[call weather {"city": "Rome"}]'
    assert found.reply[-1] == IM_END
    assert found.prompt.count(IM_END) == 1


BEGUN: Message = {"role": "assistant", "content": "My favourite"}


@pytest.mark.parametrize(
    "text", [" colour is red.", "My favourite colour is red."], ids=["streamed", "whole"]
)
def test_the_beginning_that_a_request_holds_is_prompt_and_not_taught(
    renderer: Renderer, weights: Path, text: str
):
    found = renderer.conversation(
        [*HELLO, BEGUN], (), REPLY | {"content": text}, True, 2048, template={CONTINUED: True}
    )
    assert decoded(weights, found.prompt).endswith("<|im_start|>assistant\nMy favourite")
    assert decoded(weights, found.reply) == " colour is red.<|im_end|>"
    again = renderer.prompt([*HELLO, BEGUN])
    assert decoded(weights, again).endswith("My favourite<|im_end|>\n<|im_start|>assistant\n"), (
        "a turn of its own"
    )


def test_calls_after_a_beginning_are_what_the_template_adds(weights: Path, tmp_path: Path):
    renderer = Renderer(_with_template(weights, tmp_path, TOOL_TEMPLATE))
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    reply = {"role": "assistant", "content": "My favourite: ", "tool_calls": [call]}
    found = renderer.conversation([*HELLO, BEGUN], (), reply, False, 2048, template={CONTINUED: True})
    assert decoded(weights, found.reply) == ": [call weather {}]"


def test_a_developer_is_the_system_unless_the_template_knows_one(weights: Path, tmp_path: Path):
    renderer = Renderer(_with_template(weights, tmp_path, TOOL_TEMPLATE))
    asked = [{"role": "developer", "content": "In Latin."}, *HELLO]
    assert "<|im_start|>system\nIn Latin." in decoded(weights, renderer.prompt(asked))
    (tmp_path / "chat_template.jinja").write_text("{# developer #}" + TOOL_TEMPLATE)
    assert "<|im_start|>developer\nIn Latin." in decoded(weights, Renderer(tmp_path).prompt(asked))


def test_a_model_without_a_chat_template_is_refused(weights: Path, tmp_path: Path):
    with pytest.raises(JobError, match="no chat template: use an instruct model"):
        Renderer(_with_template(weights, tmp_path, None))


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path):
    with pytest.raises(JobError, match="cannot load the tokenizer"):
        Renderer(tmp_path)


TOOL_TEMPLATE = (
    "{% for tool in tools or [] %}[tool {{ tool | tojson }}]{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "[call {{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@cache
def tokenizer(weights: Path) -> Tokenizer:
    return Tokenizer.from_file(str(weights / "tokenizer.json"))


def decoded(weights: Path, ids: Sequence[int]) -> str:
    """The text of the ids, special tokens written out."""
    return tokenizer(weights).decode(list(ids), skip_special_tokens=False)


def _with_template(weights: Path, directory: Path, template: str | None) -> Path:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_bytes((weights / name).read_bytes())
    if template is not None:
        (directory / "chat_template.jinja").write_text(template)
    return directory
