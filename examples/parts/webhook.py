"""Sends each rating to a web address. In burnish's configuration file: parts = ["webhook:Webhook"]

burnish calls ``rated`` again until it returns, over restarts too, and `burnish status --json` says if it is behind.
"""

import os

import httpx

from burnish.parts.hooks import Part
from burnish.proxy.records import Feedback


class Webhook(Part):
    name = "webhook"

    def __init__(self) -> None:
        self.address = os.environ["WEBHOOK_URL"]

    async def rated(self, feedback: Feedback) -> None:
        rating = feedback.draft
        content = {
            "id": feedback.id,
            "completion_id": rating.completion_id,
            "reward": rating.reward,
            "comment": rating.comment,
            "taken_back": feedback.undone_at is not None,
        }
        async with httpx.AsyncClient() as client:
            (await client.post(self.address, json=content)).raise_for_status()
