"""A version that waits, as a person sees it: the real program, restarted."""

from __future__ import annotations

from pathlib import Path

from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.registry import PASSED_AGAINST, Registry
from tests.support.burnish import running
from tests.support.lora import random_lora, register, write_peft
from tests.support.program import call, said

SETTINGS = {"BURNISH_TRAIN__PROMOTE": "manual", "BURNISH_OWNERS": '["local"]'}
WHY = "better than the base model: you would like 71 % of its replies."


def in_words(*arguments: str, url: str) -> str:
    done = call(*arguments, url=url)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_version_that_waits_is_shown_and_promoted(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "data" / "adapters")
    adapter = write_peft(tmp_path / "made", random_lora(1))
    made = register(registry, adapter, weights_digest(ensure_small_model()))
    verdict = {"outcome": "passed", "reason": WHY, "checks": []}
    registry.record(made.number, "candidate", WHY, verdict=verdict, **{PASSED_AGAINST: 0})
    with running(tmp_path / "data", env=SETTINGS) as up:
        assert f"waiting v1, {WHY} – make it live: burnish adapters promote" in in_words("status", url=up.url)
        listed = in_words("adapters", "list", url=up.url)
        assert "v1 waiting base" in listed
        assert "v1 waits for you; make it live: burnish adapters promote" in listed
        assert said("status", url=up.url)["live"]["version"] == 0
        assert in_words("adapters", "promote", url=up.url) == "live now: v1"
        assert "live smollm2@v1" in in_words("status", url=up.url)
        assert "waiting" not in in_words("status", url=up.url)
        again = call("adapters", "promote", url=up.url)
        assert (again.returncode, again.stdout) == (1, "")
        assert "no version waits to be promoted" in again.stderr
