"""One program for each SDK of Python, run as ``programs.py URL SDK …``: what each needs to hold a conversation."""

from __future__ import annotations

import sys
from functools import reduce
from operator import add
from typing import Any

from conversation import (
    DESCRIPTION,
    FUNCTION,
    HEADER,
    LIMIT,
    NAME,
    PARAMETERS,
    TOOLS,
    URL,
    Answer,
    Entry,
    answer,
    converse,
    gives,
    look_up,
    of_completion,
    of_items,
    tool_messages,
)

Reply = tuple[Entry, list[Answer]]
OPENAI: dict[str, Any] = {"base_url": f"{URL}/v1", "api_key": "-", "max_retries": 0}
ENDS = [".", ",", "!", "?"]
"""OpenAI's SDK raises for an answer that a limit cut, so the small model is stopped by its own words."""


def openai_chat() -> None:
    import openai

    completions = openai.OpenAI(**OPENAI).chat.completions

    def ask(history: Entry, streamed: bool) -> Reply:
        asked: dict[str, Any] = {"model": "default", "messages": history, "tools": TOOLS, "stop": ENDS}
        if streamed:  # it does not show headers then
            with completions.stream(**asked, stream_options={"include_usage": True}) as stream:
                completion, header = stream.get_final_completion(), None
        else:
            raw = completions.with_raw_response.create(**asked)
            completion, header = raw.parse(), raw.headers.get(HEADER)
        return [completion.choices[0].message], [of_completion(completion, header=header)]

    converse(ask)


def openai_responses() -> None:
    import openai

    responses = openai.OpenAI(**OPENAI).responses
    settings: Any = {
        "model": "default",
        "tools": [{"type": "function", **FUNCTION}],
        "store": False,
        "max_output_tokens": LIMIT,
        "temperature": 0,
    }

    def results(reply: Entry, text: str) -> Entry:
        calls = [item for item in reply if item.type == "function_call"]
        return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call in calls]

    def ask(history: Entry, streamed: bool) -> Reply:
        if streamed:  # it does not show headers then
            with responses.stream(**settings, input=history) as stream:
                response, header = stream.get_final_response(), None
        else:
            raw = responses.with_raw_response.create(**settings, input=history)
            response, header = raw.parse(), raw.headers.get(HEADER)
        said = of_items(response.output, response.usage, id=response.id, header=header)
        assert said["text"] == response.output_text
        return response.output, [said]

    converse(ask, results)


def anthropic_messages() -> None:
    import anthropic

    messages = anthropic.Anthropic(base_url=URL, api_key="-", max_retries=0).messages
    tool = {"name": NAME, "description": DESCRIPTION, "input_schema": PARAMETERS}
    settings: Any = {"model": "default", "max_tokens": LIMIT, "tools": [tool]}

    def results(reply: Entry, text: str) -> Entry:
        calls = [block for block in reply[0]["content"] if block.type == "tool_use"]
        given = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in calls]
        return [{"role": "user", "content": given}]

    def ask(history: Entry, streamed: bool) -> Reply:
        if streamed:
            with messages.stream(**settings, messages=history) as stream:
                message, headers = stream.get_final_message(), stream.response.headers
        else:
            raw = messages.with_raw_response.create(**settings, messages=history)
            message, headers = raw.parse(), raw.headers
        blocks, usage = message.content, message.usage
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        said = answer(
            "".join(block.text for block in blocks if block.type == "text"),
            calls=[(block.id, block.name, block.input) for block in blocks if block.type == "tool_use"],
            reasoning="".join(block.thinking for block in blocks if block.type == "thinking"),
            id=message.id,
            header=headers.get(HEADER),
            usage=(usage.input_tokens + cached, usage.output_tokens),
        )
        return [{"role": "assistant", "content": blocks}], [said]

    converse(ask, results)


def ollama_chat() -> None:
    """It shows neither ids nor headers by itself."""
    import ollama

    seen: list[str | None] = []
    hooks = {"response": [lambda response: seen.append(response.headers.get(HEADER))]}
    client = ollama.Client(host=URL, event_hooks=hooks)

    def results(reply: Entry, text: str) -> Entry:
        calls = [call for message in reply for call in message.tool_calls or ()]
        return [{"role": "tool", "tool_name": call.function.name, "content": text} for call in calls]

    def ask(history: Entry, streamed: bool) -> Reply:
        given = client.chat(model="default", messages=history, tools=TOOLS, stream=streamed)
        parts = list(given) if streamed else [given]
        calls = [call for part in parts for call in part.message.tool_calls or ()]
        message = ollama.Message(
            role="assistant",
            content="".join(part.message.content or "" for part in parts),
            thinking="".join(part.message.thinking or "" for part in parts) or None,
            tool_calls=calls or None,
        )
        said = answer(
            message.content,
            calls=[(None, call.function.name, dict(call.function.arguments)) for call in calls],
            reasoning=message.thinking,
            header=seen[-1],
            usage=(parts[-1].prompt_eval_count, parts[-1].eval_count),
        )
        return [message], [said]

    converse(ask, results)


def google_genai() -> None:
    from google import genai
    from google.genai import types

    # The client must stay: it closes its connections when it goes.
    client = genai.Client(api_key="-", http_options=types.HttpOptions(base_url=URL))
    function = types.FunctionDeclaration(
        name=NAME, description=DESCRIPTION, parameters_json_schema=PARAMETERS
    )
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[function])])

    def parts_of(contents: Entry) -> list[Any]:
        return [part for content in contents for part in content.parts or ()]

    def results(reply: Entry, text: str) -> Entry:
        names = [part.function_call.name for part in parts_of(reply) if part.function_call]
        given = [types.Part.from_function_response(name=name, response={"output": text}) for name in names]
        return [types.UserContent(given)]

    def ask(history: Entry, streamed: bool) -> Reply:
        asked: dict[str, Any] = {"model": "default", "contents": history, "config": config}
        if streamed:
            whole = list(client.models.generate_content_stream(**asked))
        else:
            whole = [client.models.generate_content(**asked)]
        # As the SDK's own chats keep a streamed answer: one content for each chunk.
        contents = [each.candidates[0].content for each in whole]
        parts, usage = parts_of(contents), whole[-1].usage_metadata
        calls = [part.function_call for part in parts if part.function_call]
        said = answer(
            "".join(part.text for part in parts if part.text and not part.thought),
            calls=[(call.id, call.name, call.args) for call in calls],
            reasoning="".join(part.text for part in parts if part.text and part.thought),
            id=whole[0].response_id,
            header=whole[0].sdk_http_response.headers.get(HEADER),
            usage=(usage.prompt_token_count, usage.candidates_token_count),
        )
        return contents, [said]

    converse(ask, results, types.UserContent)


def langchain_chat() -> None:
    """LangChain's model for OpenAI's API: it shows headers when it is told to."""
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    more: Any = {"max_tokens": LIMIT, "stream_usage": True, "include_response_headers": True}
    model = ChatOpenAI(model="default", **OPENAI, **more).bind_tools(TOOLS)

    def results(reply: Entry, text: str) -> Entry:
        return [ToolMessage(text, tool_call_id=call["id"]) for call in reply[0].tool_calls]

    def ask(history: Entry, streamed: bool) -> Reply:
        message: Any = reduce(add, model.stream(history)) if streamed else model.invoke(history)
        said = answer(
            message.text,
            calls=[(call["id"], call["name"], call["args"]) for call in message.tool_calls],
            id=message.response_metadata.get("id"),
            header=message.response_metadata["headers"].get(HEADER),
            usage=(message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]),
        )
        return [message], [said]

    converse(ask, results, HumanMessage)


def litellm() -> None:
    from litellm import completion, stream_chunk_builder

    settings: Any = {
        "model": "openai/default",
        "api_base": f"{URL}/v1",
        "api_key": "-",
        "max_retries": 0,
        "tools": TOOLS,
        "max_tokens": LIMIT,
    }

    def ask(history: Entry, streamed: bool) -> Reply:
        more: Any = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
        given: Any = completion(messages=history, **settings, **more)
        whole: Any = stream_chunk_builder(list(given)) if streamed else given
        header = given._hidden_params["additional_headers"].get(f"llm_provider-{HEADER}")
        return [whole.choices[0].message], [of_completion(whole, header=header)]

    converse(ask)


def llama_index() -> None:
    """LlamaIndex's model for servers like OpenAI's."""
    from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock, ToolCallBlock
    from llama_index.llms.openai_like import OpenAILike

    kind: Any = {"is_chat_model": True, "is_function_calling_model": True}
    model = OpenAILike(
        model="default", api_base=f"{URL}/v1", api_key="-", max_retries=0, max_tokens=LIMIT, **kind
    )

    def calls_of(message: Any) -> list[Any]:
        return [block for block in message.blocks if isinstance(block, ToolCallBlock)]

    def results(reply: Entry, text: str) -> Entry:
        named = [{"tool_call_id": call.tool_call_id} for call in calls_of(reply[0])]
        return [ChatMessage(role="tool", content=text, additional_kwargs=each) for each in named]

    def ask(history: Entry, streamed: bool) -> Reply:
        if streamed:
            *_, response = model.stream_chat(history, tools=TOOLS, stream_options={"include_usage": True})
        else:
            response = model.chat(history, tools=TOOLS)
        message, raw = response.message, response.raw
        thoughts = [block.content or "" for block in message.blocks if isinstance(block, ThinkingBlock)]
        said = answer(
            message.content,
            calls=[(call.tool_call_id, call.tool_name, call.tool_kwargs) for call in calls_of(message)],
            reasoning="".join(thoughts),
            id=raw.id,
            usage=(raw.usage.prompt_tokens, raw.usage.completion_tokens),
        )
        return [message], [said]

    converse(ask, results, lambda text: ChatMessage(role="user", content=text))


def instructor() -> None:
    """To it an answer is an object: the arguments of a call."""
    import openai
    from instructor import from_openai
    from pydantic import create_model

    model = from_openai(openai.OpenAI(**OPENAI))
    wanted = create_model(NAME, __doc__=DESCRIPTION, city=(str, ...), days=(int, ...))

    def ask(history: Entry, streamed: bool) -> Reply:
        got, completion = model.create_with_completion(
            model="default", messages=history, response_model=wanted, max_retries=0
        )
        message = completion.choices[0].message
        calls = [(message.tool_calls[0].id, type(got).__name__, got.model_dump())]
        return [message.to_dict()], [of_completion(completion, calls=calls)]

    converse(ask, tool_messages)


def openai_agents(api: str) -> None:
    """By Responses, or by chat completions. They run their tools themselves."""
    import agents
    import openai

    client = openai.AsyncOpenAI(**OPENAI)
    models: Any = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}
    agent: Any = agents.Agent(
        name="one",
        model=models[api](model="default", openai_client=client),
        model_settings=agents.ModelSettings(include_usage=True, store=False, max_tokens=LIMIT, temperature=0),
        tools=[agents.function_tool(look_up)],
    )

    async def ask(history: Entry, streamed: bool) -> Reply:
        if streamed:
            result: Any = agents.Runner.run_streamed(agent, history)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(agent, history)
        return result.to_input_list()[len(history) :], [shown(each) for each in result.raw_responses]

    def shown(response: Any) -> Answer:
        # By chat completions, the id is with each item, and nothing or an invented one with the response.
        told = next((getattr(item, "provider_data", None) for item in response.output), None) or {}
        return of_items(response.output, response.usage, id=told.get("response_id", response.response_id))

    converse(ask, gives)


def pydantic_ai() -> None:
    """Its agents run their tools themselves."""
    import openai
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelRequest, ModelResponse, ThinkingPart
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=openai.AsyncOpenAI(**OPENAI))
    agent = Agent(OpenAIChatModel("default", provider=provider), model_settings={"max_tokens": LIMIT})
    agent.tool_plain(look_up)

    async def ask(history: Entry, streamed: bool) -> Reply:
        if streamed:
            async with agent.run_stream(message_history=history) as run:
                await run.get_output()
                messages = run.all_messages()
        else:
            messages = (await agent.run(message_history=history)).all_messages()
        new = messages[len(history) :]
        return new, [shown(each) for each in new if isinstance(each, ModelResponse)]

    def shown(response: Any) -> Answer:
        thoughts = [part.content for part in response.parts if isinstance(part, ThinkingPart)]
        return answer(
            response.text,
            calls=[(call.tool_call_id, call.tool_name, call.args) for call in response.tool_calls],
            reasoning="".join(thoughts),
            id=response.provider_response_id,
            usage=(response.usage.input_tokens, response.usage.output_tokens),
        )

    converse(ask, gives, ModelRequest.user_text_prompt)


if __name__ == "__main__":
    globals()[sys.argv[2]](*sys.argv[3:])
