"""What burnish says about itself, on the terminal and in burnish.log."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.config.config import Config
from burnish.proxy import program_log
from burnish.proxy.program_log import kept, set_level
from tests.support.burnish import running
from tests.support.patience import within

KEY = "sk-" + "canary-of-burnish"
TOKEN = "gh" + "p_" + "a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r8"
logger = logging.getLogger("burnish.tests")


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    before = [(each, each.level) for each in (logging.getLogger(), logging.getLogger("burnish"))]
    set_level("info")
    yield
    for each, level in before:
        each.setLevel(level)


def test_events_are_kept_one_a_line_without_keys(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, api_key=KEY, upstream_api_key="another-key")
    with kept(config):
        logger.info("asked with %s and another-key, then %s was seen\nand more \x1b[2J", KEY, TOKEN)
        logger.debug("nobody wants to know")
        logging.getLogger("library").info("nor this")
        logging.getLogger("library").warning("but this")
    logger.info("after the end")
    first, second = config.program_log.read_text().splitlines()
    assert first.endswith("INFO burnish.tests: asked with … and …, then … was seen\\nand more [2J")
    assert second.endswith("WARNING library: but this")


@pytest.mark.parametrize(
    ("level", "said"), [("debug", "diwe"), ("info", "iwe"), ("warning", "we"), ("error", "e")]
)
def test_a_level_leaves_out_what_is_below_it(tmp_path: Path, level: str, said: str) -> None:
    config = Config(data_dir=tmp_path)
    set_level(level)
    with kept(config):
        for each in (logger.debug, logger.info, logger.warning, logger.error):
            each(each.__name__[0])
    assert [line[-1] for line in config.program_log.read_text().splitlines()] == list(said)


def test_the_file_is_followed_by_another_before_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program_log, "FILE_BYTES", 1000)
    config = Config(data_dir=tmp_path)
    with kept(config):
        for number in range(100):
            logger.info("event %d %s", number, "x" * 80)
    files = sorted(tmp_path.glob("burnish.log*"))
    assert [each.name for each in files] == ["burnish.log", *(f"burnish.log.{n}" for n in (1, 2, 3, 4))]
    assert all(each.stat().st_size <= 1000 for each in files)
    assert "event 99 " in config.program_log.read_text()


@pytest.mark.parametrize(("create", "remove"), [(Path.mkdir, Path.rmdir), (os.mkfifo, Path.unlink)])
def test_a_file_that_cannot_be_written_is_reported_once_until_it_can(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    create: Any,
    remove: Any,
) -> None:
    config = Config(data_dir=tmp_path)
    create(config.program_log)
    with kept(config):
        logger.info("one")
        logger.info("two")
        assert caplog.text.count("burnish.log can't be written (it isn't a regular file)") == 1
        remove(config.program_log)
        logger.info("three")
    assert config.program_log.read_text().endswith("burnish.tests: three\n")
    assert capsys.readouterr().err == ""


def test_a_disk_without_room_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = Config(data_dir=tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with kept(config):
        logger.info("one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (config.program_log.stat().st_size, hard))
        try:
            logger.info("two")
            logger.info("three")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        logger.info("four")
    assert caplog.text.count("burnish.log can't be written (File too large)") == 1
    assert config.program_log.read_text().splitlines()[-1].endswith("four")


def test_an_upstream_that_goes_is_named_once_and_each_request_at_debug(tmp_path: Path) -> None:
    env = {"BURNISH_ENGINE": "none"}
    flags = ("--upstream", "http://127.0.0.1:9", "--model", "m", "--log-level", "debug")
    with running(tmp_path / "data", *flags, env=env) as up:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        for _ in range(4):
            answer = httpx.post(up.url + "/v1/chat/completions", json=body, timeout=within(60))
            assert answer.status_code == 502
        assert httpx.get(up.url + "/burnish/completions", timeout=within(60)).status_code == 200
        assert up.stop() == 0
    lines = (tmp_path / "data" / "burnish.log").read_text().splitlines()
    lost = [line for line in lines if "cannot connect to http://127.0.0.1:9" in line]
    assert len(lost) == 1
    assert " WARNING burnish.proxy.http.origin: " in lost[0]
    assert sum(": failed, status " in line for line in lines) == 4
    assert (tmp_path / "data" / "burnish.log").stat().st_mode & 0o777 == 0o600
