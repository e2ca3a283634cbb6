"""Training renders the prompt that the engine read: by the engine's own count, and token by token by its cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import pytest_asyncio

from burnish.adapters.hosts.fetch import file_digest
from burnish.learner.asked import TEMPLATE, as_asked
from burnish.proxy.records import Answerer, Completion, CompletionEnd, RequestFacts
from burnish.training.rendering import Renderer
from burnish.training.weights import prepared_weights
from tests.learner.conversations import CONVERSATIONS, FORMATS, Json
from tests.support.inprocess import calling
from tests.support.llama_server import LlamaServer
from tests.support.patience import within
from tests.support.prompts import CALLS_TOOLS, Side
from tests.support.tiny_gguf import random_llama

pytest.importorskip("torch")
pytestmark = pytest.mark.asyncio(loop_scope="module")
THINKS = """{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.reasoning_content %}{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{%- endif %}
{{- message.content + '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- if style is defined %}{{- style }}{%- endif %}{%- endif %}"""


ALTERNATES = """{{ bos_token }}{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}
{{- '<|im_start|>' + message.role + '\n' + message.content | trim + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
DROPS = """{% for message in messages %}{% if message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sides(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Side]]:
    folder = tmp_path_factory.mktemp("asked")
    base = random_llama(folder / "base.gguf", keys={"tokenizer.chat_template": CALLS_TOOLS.read_text()})
    weights = prepared_weights(base, file_digest(base), folder / "weights")
    async with AsyncExitStack() as stack:

        async def server(name: str, template: str, **flags: Any) -> Side:
            place = folder / name
            place.mkdir()
            for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
                (place / file).write_bytes((weights / file).read_bytes())
            (place / "chat_template.jinja").write_text(template)
            arguments = f"-m {base} -c 4096 -np 1 --cache-ram 0 --jinja".split()
            arguments += ["--chat-template-file", str(place / "chat_template.jinja")]
            engine = stack.enter_context(LlamaServer(arguments, place / "log"))
            client = httpx.AsyncClient(base_url=engine.url, trust_env=False, timeout=within(60))
            burnish = await stack.enter_async_context(calling(place, upstream=engine.url, **flags))
            return Side(burnish, await stack.enter_async_context(client), Renderer(place))

        own = {
            "engine": "auto",
            "model": str(base),
            "parallel": 1,
            "context": 4096,
            "train": {"enabled": False},
        }
        embedded = await stack.enter_async_context(calling(folder / "embedded", **own))
        yield {
            "embedded": Side(embedded, embedded, Renderer(weights)),
            "llama-server": await server("server", CALLS_TOOLS.read_text()),
            "in chat": await server("chat", CALLS_TOOLS.read_text(), capture={"tokens": True}),
            "thinking": await server("thinking", THINKS),
            "refuses a system": await server("refuses", ALTERNATES),
            "drops a system": await server("drops", DROPS),
        }


@pytest.mark.parametrize("name", ["embedded", "llama-server"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_streams_are_counted_though_nobody_asked_for_usage(
    sides: dict[str, Side], name: str, path: str
) -> None:
    for messages in (HELLO, [*HELLO, {"role": "assistant", "content": "Yes"}, *HELLO]):
        await sides[name].check(
            path, {"model": "default", "messages": messages, "max_tokens": 2, "stream": True}
        )


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("name", ["embedded", "llama-server"])
async def test_the_prompt_is_the_one_that_the_engine_read(
    sides: dict[str, Side], name: str, write: Callable[[Json], tuple[str, Json]], conversation: str
) -> None:
    await sides[name].check(*write(CONVERSATIONS[conversation]))


HELLO = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"style": "Brief."}},
        {"reasoning_effort": "high"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
async def test_arguments_of_the_template_reach_training(
    sides: dict[str, Side], path: str, arguments: Json
) -> None:
    await sides["thinking"].check(path, {"model": "default", "messages": HELLO, "max_tokens": 1, **arguments})


SYSTEM = {"role": "system", "content": "Be brief."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}


@pytest.mark.parametrize(
    "head", [[SYSTEM], [{**SYSTEM, "role": "developer"}], [{**SYSTEM, "content": ""}], []]
)
@pytest.mark.parametrize("name", ["refuses a system", "drops a system"])
async def test_a_system_message_that_the_template_lacks_goes_where_the_engine_puts_it(
    sides: dict[str, Side], name: str, head: list[Json]
) -> None:
    for messages in (
        [*head, *HELLO],
        [*head, PARTS],
        [*head, *HELLO, {"role": "assistant", "content": "Yes"}, PARTS],
    ):
        await sides[name].check("/v1/chat/completions", {"messages": messages, "max_tokens": 1})


def function(name: str) -> Json:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


def typed(*texts: str) -> list[Json]:
    return [{"type": "input_text", "text": text} for text in texts]


def item(role: str, *texts: str) -> Json:
    return {"type": "message", "role": role, "content": typed(*texts)}


def block(text: str) -> Json:
    return {"type": "text", "text": text}


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": GRAMMAR}
SPACE = {"type": "namespace", "name": "mcp__fs", "tools": [function("read"), function("list")]}
CODEX: Json = {
    "model": "default",
    "instructions": "You are a coding agent.",
    "input": [
        item("developer", "Sandbox: read-only."),
        item("developer", "Skills:", "none"),
        item("user", "<cwd>/</cwd>"),
        item("user", "Fix it."),
    ],
    "tools": [function("shell"), SPACE, PATCH, {"type": "web_search"}, function("plan")],
    "max_output_tokens": 1,
}
HISTORY = [
    {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
    {
        "type": "function_call",
        "call_id": "c2",
        "name": "read",
        "namespace": "mcp__fs",
        "arguments": '{"p": 1}',
    },
    {"type": "function_call_output", "call_id": "c2", "output": typed("a", "b")},
    item("user", "And?"),
]
FOUND = {"type": "tool_reference", "tool_name": "TaskStop"}
CLAUDE: Json = {
    "model": "default",
    "system": [
        block("x-anthropic-billing-header: cc_version=2.1.332.e51; cc_entrypoint=cli; cch=a5145;"),
        block("You are Claude Code."),
        {**block("Be brief."), "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [block("<reminder>x</reminder>"), block("Stop it.")]},
        {"role": "system", "content": "A tool was added."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"q": "stop"}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [FOUND]}, block("Now.")],
        },
        {"role": "assistant", "content": "Hm."},
        {"role": "system", "content": [block("Another"), block("tool.")]},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [
        {"name": "ToolSearch", "description": "Finds.", "input_schema": {"type": "object"}},
        {"name": "TaskStop", "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}}},
    ],
    "max_tokens": 1,
}
SEARCHES = [*CLAUDE["tools"], {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]
RESULT = {"type": "search_result", "title": "t", "source": "s", "content": [block("found")]}


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/v1/responses", CODEX, ["embedded", "llama-server", "in chat"]),
        ("/v1/responses", {**CODEX, "input": [*CODEX["input"], *HISTORY]}, ["embedded", "in chat"]),
        ("/v1/responses", {**CODEX, "instructions": ""}, ["embedded", "llama-server", "in chat"]),
        ("/v1/responses", {**CODEX, "tools": [PATCH, SPACE]}, ["embedded", "llama-server", "in chat"]),
        ("/v1/messages", CLAUDE, ["embedded", "llama-server", "in chat"]),
        ("/v1/messages", {**CLAUDE, "system": ""}, ["embedded", "llama-server", "in chat"]),
        ("/v1/messages", {**CLAUDE, "system": CLAUDE["system"][:1]}, ["embedded", "llama-server", "in chat"]),
        ("/v1/messages", {**CLAUDE, "tools": SEARCHES}, ["embedded", "llama-server", "in chat"]),
        (
            "/v1/messages",
            {**CLAUDE, "messages": [{"role": "user", "content": [block("Read."), RESULT, block("So?")]}]},
            ["embedded", "llama-server", "in chat"],
        ),
        ("/v1/chat/completions", {"messages": [*HELLO, {"role": "assistant", "content": [block("a"), block("b")]}],
                                  "max_tokens": 1}, ["embedded", "llama-server"]),
        ("/v1/completions", {"prompt": "Once upon", "max_tokens": 1}, ["embedded", "llama-server"]),
    ],
)  # fmt: skip
async def test_agents_requests_are_rendered_as_the_engine_got_them(
    sides: dict[str, Side], path: str, body: Json, names: list[str]
) -> None:
    for name in names:
        await sides[name].check(path, body)


async def test_calls_are_taught_as_the_model_wrote_them(sides: dict[str, Side]) -> None:
    made = await sides["in chat"].asked("/v1/responses", {**CODEX, "input": [*CODEX["input"], *HISTORY]})
    custom = {"id": "c", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
    (call,) = (as_asked(made_by(made, custom), "llamacpp").reply or {})["tool_calls"]
    assert call["function"] == {"name": "apply_patch", "arguments": '{"input":"*** Begin"}'}
    read = {
        "id": "c",
        "type": "function",
        "function": {"name": "read", "arguments": "{}"},
        "namespace": "mcp__fs",
    }
    (call,) = (as_asked(made_by(made, read), "llamacpp").reply or {})["tool_calls"]
    assert call["function"]["name"] == "mcp__fs__read"


def made_by(completion: Completion, call: Json) -> Completion:
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}
    return completion._replace(reply=reply, messages=({"role": "user", "content": "Fix it."},), params={})


@pytest.mark.parametrize(
    ("params", "template"),
    [
        ({}, {}),
        ({"continue_final_message": True}, {"continue_final_message": True}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"chat_template_kwargs": {"enable_thinking": False, "tools": []}}, {"enable_thinking": False}),
        ({"chat_template_kwargs": "odd"}, {}),
    ],
)
async def test_other_engines_get_what_the_request_names(params: Json, template: Json) -> None:
    asked = (
        RequestFacts(0.0, "chat", "m", "local"),
        Answerer("http://127.0.0.1:1", "m"),
        CompletionEnd("complete", 1.0),
    )
    messages = (*HELLO, {"role": "assistant", "content": "It is"})
    made = as_asked(Completion("cmpl_1", *asked, messages=messages, params=params), "vllm")
    assert (made.messages, made.params[TEMPLATE]) == (messages, template)


async def test_a_record_that_nobody_can_translate_stays_as_it_is() -> None:
    served = Answerer("http://127.0.0.1:1", "m", in_chat=True)
    asked = RequestFacts(0.0, "responses", "m", "local"), served, CompletionEnd("complete", 1.0)
    odd = {"tools": "none", "other_tools": 3, "reasoning": [], "background": True}
    made = as_asked(Completion("cmpl_1", *asked, messages=tuple(HELLO), params=odd), "vllm")
    assert made.messages == tuple(HELLO)
