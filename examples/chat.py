"""Ask one question. The only change to a program for OpenAI is the base URL."""

import os

from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key=os.environ.get("OPENAI_API_KEY", "-"))

answer = client.chat.completions.create(
    model="default", messages=[{"role": "user", "content": "What is tea?"}], max_tokens=60
)
print(answer.choices[0].message.content)
