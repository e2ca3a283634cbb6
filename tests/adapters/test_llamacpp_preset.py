from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.llamacpp_preset import edit, options, sections, with_version, without_version

OTHERS = """\
version = 1
; a comment of someone

[*]
threads = 1

[qwen3]  # mine
model = /models/qwen3.gguf
  c = 2048
# a note inside
alias = chat, gpt
load-on-startup = true

# about the next one
[mistral]
model=/models/mistral.gguf
"""
ADAPTER = Path("/state/v0001-ab.gguf")


def test_a_version_takes_over_what_its_base_says_but_neither_alias_nor_start() -> None:
    text = with_version(OTHERS, "qwen3@v1-ab", "qwen3", ADAPTER)
    assert text.startswith(OTHERS), "not a byte of others has changed"
    added = text.removeprefix(OTHERS).split("\n", 2)[2]
    assert added == "[qwen3@v1-ab]\nmodel = /models/qwen3.gguf\nc = 2048\nlora = /state/v0001-ab.gguf\n"


def test_adding_twice_is_adding_once_and_removing_leaves_no_trace() -> None:
    once = with_version(OTHERS, "qwen3@v1-ab", "qwen3", ADAPTER)
    assert with_version(once, "qwen3@v1-ab", "qwen3", ADAPTER) == once
    twice = with_version(once, "qwen3@v2-cd", "qwen3", ADAPTER)
    assert without_version(twice, "qwen3@v2-cd") == once
    assert without_version(without_version(twice, "qwen3@v1-ab"), "qwen3@v2-cd") == OTHERS
    assert without_version(OTHERS, "qwen3@v1-ab") == OTHERS


def test_what_someone_wrote_after_our_section_stays() -> None:
    later = "# theirs\n[late]\nmodel = /models/late.gguf\n"
    text = with_version(OTHERS, "qwen3@v1-ab", "qwen3", ADAPTER) + later
    assert without_version(text, "qwen3@v1-ab") == OTHERS + later


def test_a_file_without_a_last_newline_is_not_glued_together() -> None:
    text = with_version("[qwen3]\nmodel = /q.gguf", "qwen3@v1-ab", "qwen3", ADAPTER)
    assert "model = /q.gguf\n" in text
    assert without_version(text, "qwen3@v1-ab") == "[qwen3]\nmodel = /q.gguf\n"


@pytest.mark.parametrize("key", ["lora", "--lora", "LLAMA_ARG_LORA", "lora-scaled"])
def test_a_base_that_applies_an_adapter_already_is_refused(key: str) -> None:
    with pytest.raises(EngineError, match="already has an adapter"):
        options(f"[qwen3]\nmodel = /q.gguf\n{key} = /x.gguf\n", "qwen3")


def test_a_missing_base_is_said_with_what_to_do(tmp_path: Path) -> None:
    preset = tmp_path / "models.ini"
    preset.write_text(OTHERS)
    with pytest.raises(EngineError, match=r"models\.ini: it has no section \[llama\]; add one"):
        edit(preset, lambda text: with_version(text, "llama@v1-ab", "llama", ADAPTER))
    assert preset.read_text() == OTHERS


@pytest.mark.parametrize("name", ["a,b", "a;b", "a#b", "a\n[evil]"])
def test_a_path_that_would_be_read_as_something_else_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match="can't read an adapter at"):
        with_version(OTHERS, "qwen3@v1-ab", "qwen3", Path("/state") / name)


def test_an_edit_keeps_rights_line_ends_and_links(tmp_path: Path) -> None:
    real = tmp_path / "real.ini"
    real.write_bytes(b"[qwen3]\r\nmodel = /q.gguf\r\n")
    real.chmod(0o640)
    preset = tmp_path / "models.ini"
    preset.symlink_to(real)
    edit(preset, lambda text: with_version(text, "qwen3@v1-ab", "qwen3", ADAPTER))
    assert preset.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert real.read_bytes().startswith(b"[qwen3]\r\nmodel = /q.gguf\r\n")
    assert sections(preset) == ["qwen3", "qwen3@v1-ab"]
    assert sorted(os.listdir(tmp_path)) == [".real.ini.lock", "models.ini", "real.ini"]


def test_a_preset_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot change the router's preset"):
        edit(tmp_path / "missing" / "models.ini", lambda text: text)
    assert sections(tmp_path / "missing.ini") == []


def test_editors_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    preset = tmp_path / "models.ini"
    preset.write_text(OTHERS)

    def add(number: int) -> None:
        edit(preset, lambda text: with_version(text, f"qwen3@v{number}-ab", "qwen3", ADAPTER))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sections(preset)) == 3 + 8
