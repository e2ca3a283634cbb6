"""Print an answer while it is written."""

import os

from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key="-")

chunks = client.chat.completions.create(
    model="default", messages=[{"role": "user", "content": "What is tea?"}], max_tokens=60, stream=True
)
for chunk in chunks:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
