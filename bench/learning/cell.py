"""One cell of the grid: one user, one way to learn, one seed; more and more of the same ratings.

The questions are asked once a seed and system message, of the bare model, and the answers kept: every arm learns from
the same ratings of the same answers. At each number of ratings burnish trains from the bare model, judges, and its
version is asked the held-out questions, whatever the gate said; then it is rolled back.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from burnish.bench.arms import ARMS
from burnish.bench.general import FACTS, right
from burnish.bench.preferences import PREFERENCES, Preference
from burnish.bench.questions import PROMPTS
from burnish.bench.running import burnish
from burnish.bench.stress import Stress, stressed
from burnish.bench.user import Answered, User, summarise

HELD_OUT = 80
# A run on 128 ratings takes eight minutes on two quiet cores.
RUN_LIMIT_S = 3600.0
POLL_S = 0.5

Say = Callable[[str], None]
"""Told what is being done."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is to be measured."""

    arm: str
    preference: str
    seed: int
    counts: tuple[int, ...]
    stress: Stress = "none"
    held_out: int = HELD_OUT

    @property
    def key(self) -> str:
        """Its name in the results."""
        ratings = "-".join(map(str, self.counts))
        return f"{self.preference}/{self.arm}/{self.stress}/{ratings}/{self.held_out}/{self.seed}"


class NothingLearnt(RuntimeError):
    """burnish did not train where it should."""


def measure(cell: Cell, work: Path, say: Say) -> dict[str, Any]:
    """Run a cell and return its record; ``work`` keeps the answers that cells share. Raises NothingLearnt."""
    arm, preference = ARMS[cell.arm], PREFERENCES[cell.preference]
    order = random.Random(cell.seed).sample(PROMPTS, len(PROMPTS))
    held_out = order[-cell.held_out :]
    session = _session(preference, cell.seed, order[: max(cell.counts)], arm.pairs, work, say)
    folder = work / "cell"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(session, folder)
    first, second = (
        [Answered(**each) for each in each_time]
        for each_time in json.loads((folder / "answers.json").read_text())
    )
    settings = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__SEED": str(cell.seed)} | dict(
        arm.settings
    )
    points = []
    with burnish(folder, settings) as url:
        user = User(url, preference, cell.seed)
        say("asking the bare model")
        before = _asked(user, held_out)
        for done, count in zip((0, *cell.counts), cell.counts, strict=False):
            said = stressed(cell.stress, [user.pleased(each) for each in first[:count]], cell.seed)
            for place in range(done, count):
                _tell(user, first[place], second[place] if arm.pairs else None, said[place], arm.comments)
            say(f"learning from {count} ratings")
            points.append(_learn(url, count, say) | _asked_live(url, user, held_out))
    return asdict(cell) | {"key": cell.key, "before": before, "points": points}


def _session(
    preference: Preference, seed: int, questions: list[str], pairs: bool, work: Path, say: Say
) -> Path:
    """Return a data directory in which the questions were asked, and their answers (``answers.json``)."""
    kind = "plain" if preference.system is None else "briefly"
    folder = work / f"asked-{kind}-{seed}-{len(questions)}{'-twice' if pairs else ''}"
    if (folder / "answers.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say(f"asking {len(questions)} questions")
    with burnish(folder, {"BURNISH_TRAIN__ENABLED": "false"}) as url:
        user = User(url, preference, seed)
        answers = [
            user.ask_all(questions, "default", first_seed=1000 * (seed + 1) + 500 * again)
            for again in range(1 + pairs)
        ]
    content = [[asdict(answered) for answered in each] for each in answers] + ([] if pairs else [[]])
    (folder / "answers.json").write_text(json.dumps(content, ensure_ascii=False))
    return folder


def _tell(user: User, first: Answered, second: Answered | None, good: bool | None, comments: bool) -> None:
    if second is None:
        if good is not None:
            user.rate(first, good, comment=comments)
    elif user.pleased(first) != user.pleased(second):
        better, worse = (first, second) if user.pleased(first) else (second, first)
        user.prefer(better, worse)


def _learn(url: str, count: int, say: Say) -> dict[str, Any]:
    """Train on what is rated, and make the version live whatever the gate said; return what is known of the run."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        started = http.post("/burnish/train", json={"force": True})
        if started.status_code != httpx.codes.ACCEPTED:
            return {"ratings": count, "outcome": "not trained", "reason": started.json()["error"]["message"]}
        run: dict[str, Any] = {"id": started.json()["run_id"], "ended_at": None}
        deadline = time.monotonic() + RUN_LIMIT_S
        while run["ended_at"] is None:
            if time.monotonic() > deadline:
                raise NothingLearnt(f"the run on {count} ratings did not end within {RUN_LIMIT_S:.0f} s")
            time.sleep(POLL_S)
            run = http.get(f"/burnish/runs/{run['id']}").json()
        record = {"ratings": count, "outcome": run["status"], "reason": run["reason"]}
        if run["version"] is None:
            return record
        version = http.get(f"/burnish/adapters/{run['version']}").json()
        if run["status"] != "live":
            promoted = http.post(f"/burnish/adapters/{run['version']}/promote", json={"force": True})
            promoted.raise_for_status()
        say(f"v{run['version']}: {run['status']}")
        return record | {
            "objective": version["manifest"]["objective"],
            "metrics": version["manifest"]["metrics"],
            "checks": {
                check["name"]: check["value"] for check in (version.get("verdict") or {}).get("checks", ())
            },
        }


def _asked_live(url: str, user: User, held_out: list[str]) -> dict[str, Any]:
    asked = _asked(user, held_out)
    httpx.post(f"{url}/burnish/adapters/rollback", json={"to": 0}, trust_env=False, timeout=60)
    return asked


def _asked(user: User, held_out: list[str]) -> dict[str, Any]:
    """Ask what is live all held-out questions, and what it knows of the world."""
    answers = user.ask_all(held_out, "default", first_seed=0)
    known = user.ask_plainly([question for question, _ in FACTS])
    return asdict(summarise(answers, user.preference)) | {
        "general": sum(right(answer, accepted) for answer, (_, accepted) in zip(known, FACTS, strict=True))
        / len(FACTS),
        "examples": [[each.question, each.answer] for each in answers[:6]],
    }
