"""Promote the latest version and roll it back while an answer streams. The stream isn't interrupted."""

import os

import httpx
from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key="-")
burnish = httpx.Client(base_url=URL.removesuffix("/v1"), timeout=60)

versions = [each["version"] for each in burnish.get("/burnish/adapters").json()["adapters"]]
if not versions:
    raise SystemExit("There is no version yet: run train_and_wait.py first.")

chunks = client.chat.completions.create(
    model="default", messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=200, stream=True
)
for number, chunk in enumerate(chunks):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    if number == 5:  # force: also if the gate rejected the version
        burnish.post(f"/burnish/adapters/{versions[-1]}/promote", json={"force": True}).raise_for_status()
        print(f"\n[v{versions[-1]} is live]")
    if number == 10:
        burnish.post("/burnish/adapters/rollback", json={}).raise_for_status()
        print("\n[rolled back]")
print()
