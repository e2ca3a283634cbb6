"""Rate an answer by its ID, as a thumbs-up button in an application does."""

import os

import httpx
from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key="-")

answer = client.chat.completions.create(
    model="default", messages=[{"role": "user", "content": "What is tea?"}], max_tokens=60
)
print(answer.choices[0].message.content)

feedback = httpx.post(f"{URL}/feedback", json={"response_id": answer.id, "rating": "good"})
feedback.raise_for_status()
print("saved", feedback.json()["id"])
