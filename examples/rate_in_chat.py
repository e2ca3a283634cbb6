"""Rate an answer by a message in the chat. This works in any program with a text field; the model never sees it."""

import os

from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key="-")
messages = []


def say(text: str) -> str:
    messages.append({"role": "user", "content": text})
    answer = client.chat.completions.create(model="default", messages=messages, max_tokens=60)
    messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
    return messages[-1]["content"]


print(say("What is coffee?"))
print(say("/rl bad too long"))
