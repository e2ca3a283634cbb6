"""The command that installs an extra fits the way in which burnish was installed (PEP 610, uv, pipx)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from burnish.system import extras
from burnish.system.extras import how_to_install

GIT = {"url": "https://example.org/burnish.git", "vcs_info": {"vcs": "git", "requested_revision": "v1"}}
WHEEL = {"url": "file:///home/me/burnish-0.1.0-py3-none-any.whl", "archive_info": {}}
PYTHON = "/nowhere/bin/python"
PIP = f"{PYTHON} -m pip install"
METADATA = """Metadata-Version: 2.1
Name: burnish
Version: 0.1.0
Requires-Dist: gguf>=0.17
Requires-Dist: torch>=2.6; extra == "train"
Requires-Dist: elsewhere>=1; sys_platform == "nowhere" and extra == "train"
Requires-Dist: mlx-lm>=0.32; extra == "mlx"
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without uv, in a machine without uv."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setenv("PATH", "")
    return tmp_path


def installed_from(direct_url: Any, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a distribution onto the path as pip writes it."""
    info = environment / "burnish-0.1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(METADATA)
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    monkeypatch.syspath_prepend(environment)


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (GIT, f'{PIP} "burnish[train] @ git+https://example.org/burnish.git@v1"'),
        # pip refuses git+file:/// behind a name.
        (
            {"url": "file:///clone", "vcs_info": {"vcs": "git"}},
            f'{PIP} "burnish[train] @ git+file://localhost/clone"',
        ),
        (WHEEL, f'{PIP} "burnish[train] @ file:///home/me/burnish-0.1.0-py3-none-any.whl"'),
        ({"url": "file:///my%20clone", "dir_info": {"editable": True}}, f"{PIP} -e '/my clone[train]'"),
        ({"url": "file:///clone", "dir_info": {}}, f'{PIP} "burnish[train] @ file:///clone"'),
        # From an index, or damaged: the name may be somebody else's.
        (None, f"{PIP} 'torch>=2.6'"),
        ([], f"{PIP} 'torch>=2.6'"),
        ({"url": "file:///clone", "dir_info": None}, f"{PIP} 'torch>=2.6'"),
    ],
)
def test_pip(direct_url: Any, command: str, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(direct_url, environment, monkeypatch)
    assert how_to_install("train") == command


def test_without_a_source_the_packages_are_named(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(None, environment, monkeypatch)
    assert how_to_install() == f"{PIP} 'gguf>=0.17'"
    assert how_to_install("mlx") == f"{PIP} 'mlx-lm>=0.32'"


def test_a_uv_on_the_path_picks_the_torch_that_fits(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_from(WHEEL, environment, monkeypatch)
    uv = environment / "uv"
    uv.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(environment))
    command = f"{uv} pip install --python {PYTHON} --torch-backend=auto"
    assert how_to_install("train") == f'{command} "burnish[train] @ {WHEEL["url"]}"'
    assert how_to_install("otel") == f'{PIP} "burnish[otel] @ {WHEEL["url"]}"'


def test_uv_keeps_the_extras_that_are_there(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(GIT, environment, monkeypatch)
    receipt = environment / "uv-receipt.toml"
    receipt.write_text('[tool]\nrequirements = [{ name = "burnish", extras = ["train"], git = "…" }]\n')
    assert how_to_install("otel") == (
        'uv tool install --force --torch-backend=auto "burnish[otel,train] @ git+https://example.org/burnish.git@v1"'
    )
    receipt.write_text("damaged [")
    assert "burnish[otel] @" in how_to_install("otel")


def test_pipx(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(WHEEL, environment, monkeypatch)
    (environment / "pipx_metadata.json").write_text("{}")
    assert how_to_install() == f'pipx install --force "burnish @ {WHEEL["url"]}"'


def test_mlx_trains_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[str] = set()
    monkeypatch.setattr(extras, "find_spec", lambda name: name if name in there else None)
    assert extras.missing_for_training() == list(extras.TRAINING)
    there.add("mlx_lm")
    assert extras.missing_for_training() == []
