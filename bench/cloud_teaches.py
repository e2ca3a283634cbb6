"""Do ratings of a cloud model's answers teach the local model?

``python -m bench.cloud_teaches [--seed N]``: starts a double of a cloud and a burnish with the embedded model side by
side. A simulated user asks the cloud's model through burnish, and rates its short answers good and its long ones bad
(``teaches = true``). burnish trains by itself. Prints how the local model's answers to other questions changed.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import mean
from typing import Any

from burnish.gate.check import GateLimits
from burnish.gate.intervals import mean_gain
from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo.outcome import HELD_OUT, Exam
from burnish.parts.desktop.demo.questions import BRIEFLY, QUESTIONS
from burnish.parts.desktop.demo.running import burnish
from burnish.parts.desktop.demo.trial import RunBar, examine, shown, wait_for_verdict
from burnish.parts.desktop.demo.user import User, brief
from burnish.terminal.client import Proxy

CLOUD_MODEL = "cloud-1"
LONG = (
    "That's a good question, and there is a lot to say about it. {} Of course, this is only the short version of a "
    "longer story: people have thought about it for a long time, opinions differ in the details, and there are "
    "several sides to consider. If you would like to know more, I can explain the background and give you examples."
)
"""What the cloud's model makes of every second answer."""

_ANSWERS = """
What is a volcano?|A volcano is an opening in the earth's crust through which lava and gas escape.
What is an umbrella for?|An umbrella keeps you dry in the rain.
What is snow?|Snow is frozen water that falls from clouds as crystals.
What is the tallest mountain?|The tallest mountain is Mount Everest.
Why do people blush?|People blush because embarrassment widens the blood vessels of the face.
Where is the Eiffel Tower?|The Eiffel Tower is in Paris, France.
Why do cars need oil?|Cars need oil to lubricate the moving parts of the engine.
How do vaccines work?|Vaccines train the immune system to recognise a disease.
What is a calendar for?|A calendar shows the days, weeks and months of a year.
What is the sun?|The sun is the star at the center of our solar system.
What is the fastest land animal?|The fastest land animal is the cheetah.
How many months are in a year?|There are twelve months in a year.
Where does milk come from?|Milk comes mostly from cows.
Who wrote Romeo and Juliet?|William Shakespeare wrote Romeo and Juliet.
What is the coldest season?|The coldest season is winter.
What instrument has black and white keys?|The piano has black and white keys.
Where do fish live?|Fish live in water: in rivers, lakes and the sea.
What is cheese made from?|Cheese is made from milk.
What is the currency of Japan?|The currency of Japan is the yen.
Who was Mozart?|Mozart was an Austrian composer of the 18th century.
What do bees make?|Bees make honey and wax.
Why do cats purr?|Cats purr mostly when they are content.
What is a glacier?|A glacier is a large, slowly moving mass of ice.
What do you use to cut paper?|You use scissors to cut paper.
What is the opposite of hot?|The opposite of hot is cold.
What is the capital of Italy?|The capital of Italy is Rome.
What is the boiling point of water?|Water boils at 100 degrees Celsius.
Which planet is closest to the sun?|Mercury is the planet closest to the sun.
Why do we need vitamins?|We need vitamins because the body can't make most of them itself.
Which animal barks?|The dog barks.
What is a good gift for a mother?|Flowers are a good gift for a mother.
What is jet lag?|Jet lag is tiredness after a flight across time zones.
What is a mammal?|A mammal is an animal that feeds its young with milk.
How many minutes are in an hour?|There are sixty minutes in an hour.
Why do plants need sunlight?|Plants need sunlight to make sugar from water and air.
Why is sleep important?|Sleep lets the body and the brain recover.
Where do penguins live?|Penguins live in the southern hemisphere, mostly in Antarctica.
What is the hardest mineral?|The hardest mineral is diamond.
What is the largest animal?|The largest animal is the blue whale.
What is a baby dog called?|A baby dog is called a puppy.
"""
ANSWERS: dict[str, str] = dict(line.split("|") for line in _ANSWERS.strip().splitlines())


class Cloud(BaseHTTPRequestHandler):
    """A server of chat completions that knows the answers, streams them, and makes every second one long."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        question = asked["messages"][-1]["content"]
        place = list(ANSWERS).index(question)
        words = (LONG if place % 2 else "{}").format(ANSWERS[question]).split(" ")
        deltas: list[dict[str, Any]] = [
            {"content": words[0]},
            *({"content": f" {word}"} for word in words[1:]),
        ]
        events = [self._event(place, delta, None) for delta in deltas]
        self._send(
            "text/event-stream", b"".join([*events, self._event(place, {}, "stop"), b"data: [DONE]\n\n"])
        )

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"data": [{"id": CLOUD_MODEL}]}).encode())

    def _event(self, place: int, delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": f"chatcmpl-cloud-{place}", "object": "chat.completion.chunk", "choices": [choice]}
        return b"data: " + json.dumps(chunk | {"created": 0, "model": CLOUD_MODEL}).encode() + b"\n\n"

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def cloud() -> Iterator[str]:
    """Run the double; yield its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Cloud) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    measure(parser.parse_args().seed)


def measure(seed: int) -> None:
    dice = random.Random(seed)
    asked = dice.sample(list(ANSWERS), len(ANSWERS))
    held_out = dice.sample([each for each in QUESTIONS if each not in ANSWERS], HELD_OUT)
    with (
        tempfile.TemporaryDirectory(prefix="cloud-teaches-") as folder,
        cloud() as url,
        burnish(Path(folder), settings(url, seed)) as address,
        shown(f"seed {seed}", quiet=False) as screen,
        User(address, BRIEFLY) as local,
        User(address, BRIEFLY, model=CLOUD_MODEL) as remote,
    ):
        proxy = Proxy(address)
        before = examine(local, held_out, screen, "before")
        began = time.monotonic()
        good = rate(remote, asked, screen)
        live = wait_for_verdict(proxy, screen)
        minutes = (time.monotonic() - began) / 60
        after = examine(local, held_out, screen, "after")
        version = proxy.get("/burnish/adapters/1")
    print(f"ratings of the cloud's answers: {len(asked)}, {good} of them good")
    print(f"live: {'yes' if live else 'no'}, {minutes:.1f} minutes after the first rating")
    print(f"verdict: {version['reason']}")
    for line in report(before, after):
        print(line)


def settings(url: str, seed: int) -> dict[str, str]:
    table = "BURNISH_UPSTREAMS__CLOUD__"
    return {
        f"{table}URL": url,
        f"{table}MODELS": json.dumps([CLOUD_MODEL]),
        f"{table}TEACHES": "true",
        "BURNISH_TRAIN__SEED": str(seed),
    }


def rate(user: User, asked: list[str], screen: RunBar) -> int:
    """Ask the cloud's model and rate its answers; return how many were good."""
    screen.step("asking the cloud and rating", len(asked))
    good = 0
    for answered in screen.counted(user.ask_all(asked)):
        satisfied = answered.satisfies(brief)
        user.rate(answered, satisfied)
        good += satisfied
    return good


def report(before: Exam, after: Exam) -> list[str]:
    """Return how the local model's answers changed, as lines."""
    gains = [
        float(new.satisfies(brief)) - float(old.satisfies(brief))
        for old, new in zip(before.answers, after.answers, strict=True)
    ]
    # Answers to one question are no independent draws, so the interval is over questions.
    change = mean_gain([mean(gains[place::HELD_OUT]) for place in range(HELD_OUT)], GateLimits())
    old, new = before.summary, after.summary
    return [
        f"the local model's answers, {len(before.answers)} before and after:",
        f"  short:               {old.satisfied:.2f} → {new.satisfied:.2f} "
        f"(change {change.estimate:+.2f}, 95 % interval {change.lower:+.2f} to {change.upper:+.2f})",
        f"  short and on topic:  {old.joint:.2f} → {new.joint:.2f}",
        f"  on topic:            {old.on_topic:.2f} → {new.on_topic:.2f}",
        f"  mean characters:     {old.mean_characters:.0f} → {new.mean_characters:.0f}",
        f"  facts known, of {len(FACTS)}: {before.facts} → {after.facts}",
    ]


if __name__ == "__main__":
    main()
