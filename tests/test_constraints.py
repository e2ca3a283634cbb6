from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# scripts/install picks its build.
UNPINNED = {"torch"}


def test_every_package_of_the_development_profile_and_of_the_cloud_extra_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    named = [
        *project["project"]["dependencies"],
        *(
            requirement
            for extra in ("train", "demo", "cloud", "agents", "tensorboard")
            for requirement in extras[extra]
        ),
        *(
            each
            for group in ("lint", "dev")
            for each in project["dependency-groups"][group]
            if isinstance(each, str)
        ),
    ]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0] for line in lines}
    assert {re.split(r"[^\w.-]", each)[0] for each in named} - UNPINNED <= pinned
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+( ; python_full_version .*)?", line) for line in lines)
