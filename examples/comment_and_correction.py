"""Say what was wrong with an answer, and which answer you wanted. Both teach more than a bare rating."""

import os

import httpx
from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key="-")

answer = client.chat.completions.create(
    model="default", messages=[{"role": "user", "content": "What is the capital of France?"}], max_tokens=60
)
print(answer.choices[0].message.content)

for feedback in (
    {"rating": "bad", "comment": "Answer in one short sentence."},
    {"correction": "Paris is the capital of France."},
):
    httpx.post(f"{URL}/feedback", json={"response_id": answer.id, **feedback}).raise_for_status()
