"""The container's files: linted, complete, and safe when they're started as they are. No image is built here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from burnish.config.config import load_config
from tests.support.burnish import running
from tests.support.program import NOBODY, run

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
OURS = [name for name in SERVICES if name.startswith("burnish")]
KEYS = ("BURNISH_API_KEY", "BURNISH_ADMIN_KEY")


def image_settings() -> dict[str, str]:
    return dict(re.findall(r"(BURNISH_\w+)=(\S+)", DOCKERFILE))


def health_check() -> list[str]:
    [command] = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    python, *arguments = json.loads(command)
    assert python == "python"
    return [sys.executable, *arguments]


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "Dockerfile"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
    ],
    ids=lambda command: command[0],
)
def test_linters_are_content(command: list[str]) -> None:
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_is_built_from_all_that_the_package_needs() -> None:
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.*)", DOCKERFILE, re.MULTILINE)
        for name in line.split()[:-1]
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = project["tool"]["hatch"]["build"]["only-include"]
    needed = {part.partition("/")[0] for part in parts} | {"pyproject.toml", project["project"]["readme"]}
    assert needed <= copied
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignore if line.startswith("!")} == copied


def test_the_image_does_not_run_as_root_and_keeps_its_data() -> None:
    assert re.search(r"^USER [1-9]\d*", DOCKERFILE, re.MULTILINE)
    [volume] = re.findall(r"^VOLUME (\S+)$", DOCKERFILE, re.MULTILINE)
    assert image_settings()["BURNISH_DATA_DIR"] == volume
    assert image_settings()["BURNISH_CACHE_DIR"].startswith(volume)
    for name in OURS:
        assert [each.partition(":")[2] for each in SERVICES[name]["volumes"]] == [
            volume,
            f"{volume}/adapters",
        ]


def test_the_engine_sees_the_versions_and_not_the_log() -> None:
    mounted = [each for each in SERVICES["vllm"]["volumes"] if "/data" in each]
    assert mounted == ["versions:/data/adapters:ro"]
    assert re.search(r"install --directory --owner=burnish .*/data/adapters$", DOCKERFILE, re.MULTILINE)


@pytest.mark.parametrize("name", OURS)
def test_compose_demands_both_keys_and_publishes_on_loopback_only(name: str) -> None:
    environment = SERVICES[name]["environment"]
    for key in KEYS:
        assert environment[key].startswith(f"${{{key}:?")
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


@pytest.mark.parametrize("name", OURS)
def test_compose_and_the_image_set_what_burnish_knows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    given = image_settings() | SERVICES[name]["environment"] | {key: key.lower() for key in KEYS}
    for variable, value in given.items():
        # A default of compose's own, such as ${VLLM_MODEL:-Qwen/Qwen3-0.6B}.
        monkeypatch.setenv(variable, re.sub(r"\$\{\w+:-(.*)\}", r"\1", value))
    config = load_config()
    assert (config.host, config.port, config.data_dir) == ("0.0.0.0", 8787, Path("/data"))
    assert config.upstream == ("http://vllm:8000" if name == "burnish-gpu" else None)


def test_without_a_key_it_says_which_variable_to_set(tmp_path: Path) -> None:
    # Folders and port are those of the test, should it start after all.
    ours = {
        "BURNISH_DATA_DIR": str(tmp_path),
        "BURNISH_CACHE_DIR": str(tmp_path),
        "BURNISH_PORT": "0",
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    refused = run("up", env=image_settings() | ours)
    assert refused.returncode == 2
    assert "set api_key (BURNISH_API_KEY)" in refused.stderr


def test_the_health_check_tells_whether_it_serves(tmp_path: Path) -> None:
    env = {"BURNISH_API_KEY": "for clients"}
    with running(tmp_path, "--upstream", NOBODY, "--no-train", env=env) as burnish:
        port = burnish.url.rpartition(":")[2]

        def status(key: str) -> int:
            variables = os.environ | {"BURNISH_PORT": port, "BURNISH_API_KEY": key}
            return subprocess.run(health_check(), env=variables, capture_output=True, check=False).returncode

        assert status("for clients") == 0
        assert status("wrong") == 1
    assert status("for clients") == 1
