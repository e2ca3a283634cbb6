"""Rate twenty answers, train on them, and wait for the verdict. Takes some minutes on a laptop."""

import os
import time

import httpx
from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key="-")
burnish = httpx.Client(base_url=URL.removesuffix("/v1"), timeout=60)

answers = []
for subject in [
    "tea",
    "rust",
    "a castle",
    "snow",
    "a violin",
    "salt",
    "a bee",
    "the moon",
    "a lighthouse",
    "bread",
]:
    for question in (f"What is {subject}?", f"Tell me about {subject}."):
        messages = [{"role": "user", "content": question}]
        answer = client.chat.completions.create(model="default", messages=messages, max_tokens=60)
        answers.append((len(answer.choices[0].message.content or ""), answer.id))

answers.sort()  # the shorter half is good
for rank, (_, response_id) in enumerate(answers):
    rating = "good" if rank < len(answers) // 2 else "bad"
    burnish.post("/v1/feedback", json={"response_id": response_id, "rating": rating}).raise_for_status()

run_id = burnish.post("/burnish/train", json={}).raise_for_status().json()["run_id"]
while not (run := burnish.get(f"/burnish/runs/{run_id}").json()).get("ended_at"):
    time.sleep(1)
print(f"{run['status']}: {run['reason']}")
