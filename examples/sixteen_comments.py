"""Say "too long" about sixteen answers, and a run starts by itself: the program of docs/tutorial.md."""

import os
import re
from itertools import cycle

import httpx
from openai import OpenAI

URL = os.environ.get("BURNISH_URL", "http://127.0.0.1:8787/v1")
client = OpenAI(base_url=URL, api_key="-")

questions = """What is a castle? How do I fold a shirt? Why do cats purr? Where do penguins live? What is rust?
How does a zipper work? Who was Mozart? What is inflation? How do I sharpen a knife? Why is the sea salty?
What is a comet? How do I keep basil alive? Where does cotton come from? What is a compass for? Why do we yawn?
How do vaccines work? What is a sonnet? How do I remove a coffee stain? What is yeast? Why do leaves fall?"""
words = cycle(("too long", "one short sentence, please", "just the answer in a few words"))

count = 0
for question in re.findall(r"\w[^?]+\?", questions):
    messages = [{"role": "user", "content": question}]
    # Cut at 96 tokens, so that the run takes minutes. README's times and memory are for such answers.
    answer = client.chat.completions.create(model="default", messages=messages, max_tokens=96)
    text = answer.choices[0].message.content or ""
    feedback = {"response_id": answer.id, "rating": "good"}
    if len(text) >= 130:
        feedback |= {"rating": "bad", "comment": next(words)}
        count += 1
    httpx.post(f"{URL}/feedback", json=feedback).raise_for_status()
    print(count, feedback["rating"], feedback.get("comment", ""), "|", question, "→", text[:40])
    if count == 16:
        break
