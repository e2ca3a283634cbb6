"""Google's SDK."""

from __future__ import annotations

from typing import Any

from conversation import DESCRIPTION, HEADER, NAME, PARAMETERS, URL, Answer, Entry, answer, converse
from google import genai
from google.genai import types

client = genai.Client(api_key="-", http_options=types.HttpOptions(base_url=URL))
FUNCTION = types.FunctionDeclaration(name=NAME, description=DESCRIPTION, parameters_json_schema=PARAMETERS)
CONFIG = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[FUNCTION])])


def user(text: str) -> Any:
    return types.UserContent(text)


def results(reply: Entry, text: str) -> Entry:
    calls = [part.function_call for content in reply for part in content.parts if part.function_call]
    given = [types.Part.from_function_response(name=call.name, response={"output": text}) for call in calls]
    return [types.UserContent(given)]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    asked: dict[str, Any] = {"model": "default", "contents": history, "config": CONFIG}
    models = client.models
    whole = list(models.generate_content_stream(**asked)) if streamed else [models.generate_content(**asked)]
    # As the SDK's own chats keep a streamed answer: one content for each chunk.
    contents = [each.candidates[0].content for each in whole]
    parts = [part for content in contents for part in content.parts or ()]
    calls = [part.function_call for part in parts if part.function_call]
    usage = whole[-1].usage_metadata
    said = answer(
        "".join(part.text for part in parts if part.text and not part.thought),
        calls=[(call.id, call.name, call.args) for call in calls],
        reasoning="".join(part.text for part in parts if part.text and part.thought) or None,
        id=whole[0].response_id,
        header=whole[0].sdk_http_response.headers.get(HEADER),
        usage=(usage.prompt_token_count, usage.candidates_token_count),
    )
    return contents, [said]


converse(user, ask, results)
