"""An agent with a tool, by Anthropic's SDK: burnish understands its wire format, too."""

import os

import anthropic

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = anthropic.Anthropic(base_url=URL.removesuffix("/v1"), api_key="-")


@anthropic.beta_tool
def weather(city: str) -> str:
    """Look up the weather in a city."""
    return f"It is sunny in {city}."


runner = client.beta.messages.tool_runner(
    model="default",
    max_tokens=60,
    tools=[weather],
    messages=[{"role": "user", "content": "What is the weather in Paris?"}],
)
for message in runner:
    for block in message.content:
        print(block.text if block.type == "text" else f"[{block.type}]")
