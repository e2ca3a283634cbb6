"""Let a running burnish train on what it was told, and say what became of it."""

from __future__ import annotations

import time
from typing import Any

import httpx

# A run on 128 ratings takes eight minutes on two quiet cores.
RUN_LIMIT_S = 3600.0
POLL_S = 0.5


class NothingLearnt(RuntimeError):
    """burnish did not train where it should."""


def learn(url: str, *, overrule: bool) -> dict[str, Any]:
    """Train now, and return what is known of the run. Raises NothingLearnt when it does not end.

    ``overrule``: on whatever there is, and what was trained goes live whatever the gate says.
    """
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        started = http.post("/burnish/train", json={"force": overrule})
        if started.status_code != httpx.codes.ACCEPTED:
            return {"outcome": "not trained", "reason": started.json()["error"]["message"]}
        run = _ended(http, started.json()["run_id"])
        record = {"outcome": run["status"], "reason": run["reason"]}
        if run["version"] is None:
            return record
        version = http.get(f"/burnish/adapters/{run['version']}").json()
        if overrule and run["status"] != "live":
            promoted = http.post(f"/burnish/adapters/{run['version']}/promote", json={"force": True})
            promoted.raise_for_status()
    checks = (version.get("verdict") or {}).get("checks", ())
    return record | {
        "objective": version["manifest"]["objective"],
        "metrics": version["manifest"]["metrics"],
        "checks": {check["name"]: check["value"] for check in checks},
    }


def leave(url: str) -> None:
    """Make the base model live, so that an engine of somebody else's is left as it was."""
    httpx.post(f"{url}/burnish/adapters/rollback", json={"to": 0}, trust_env=False, timeout=60)


def _ended(http: httpx.Client, run_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < deadline:
        run: dict[str, Any] = http.get(f"/burnish/runs/{run_id}").json()
        if run["ended_at"] is not None:
            return run
        time.sleep(POLL_S)
    raise NothingLearnt(f"the run {run_id} did not end within {RUN_LIMIT_S:.0f} s")
