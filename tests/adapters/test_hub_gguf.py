"""Models from a hub: chosen, downloaded, gone on with, checked, and every way in which that fails."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.fetch import file_digest
from burnish.adapters.hosts.hub_cache import HubModel, cached, quantisation, read_name
from burnish.adapters.hosts.hub_gguf import HubFile, fetched
from tests.support.hub import COMMIT, TOKEN, Hub, hub

REPO = "owner/small-GGUF"
CONTENT = b"GGUF" + bytes(range(256)) * 4000  # a million bytes, in one chunk
FILES = {
    "README.md": b"read me",
    "small-Q4_K_M.gguf": CONTENT,
    "small-q8_0.gguf": CONTENT[:2000],
    "mmproj-small-F16.gguf": b"GGUF eyes",
    "big-Q6_K-00001-of-00002.gguf": b"GGUF half",
}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub({REPO: dict(FILES)}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def fetch(name: str, progress: list[int] | None = None) -> Path:
    model = read_name(name)
    assert model
    return fetched(model, lambda file: None, ([] if progress is None else progress).append)


def blobs(home: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in home.glob("hub/*/blobs/*")}


def part(home: Path, content: bytes) -> Path:
    """The beginning that an earlier attempt left."""
    path = home / "hub" / "models--owner--small-GGUF" / "blobs"
    path.mkdir(parents=True)
    path /= f"{hashlib.sha256(CONTENT).hexdigest()}.incomplete"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("owner/name", HubModel("owner/name", None)),
        ("Qwen/Qwen3-0.6B-GGUF:q8_0", HubModel("Qwen/Qwen3-0.6B-GGUF", "q8_0")),
        ("owner/name:a-Q4_0.gguf", HubModel("owner/name", "a-Q4_0.gguf")),
        ("models/small.gguf", None),
        ("./owner/name", None),
        ("~/name", None),
        ("qwen3-0.6b", None),
        ("owner/name/more", None),
        ("http://owner/name", None),
    ],
)
def test_a_name_on_the_hub_is_told_from_a_file(text: str, model: HubModel | None) -> None:
    assert read_name(text) == model


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("Qwen3-0.6B-Q8_0.gguf", "Q8_0"),
        ("qwen2.5-coder-3b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("phi-4-q4.gguf", "Q4"),
        ("UD/Qwen3-4B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gemma-3-4b-it-f16.gguf", "F16"),
        ("phi-4-fp16.gguf", "FP16"),
        ("phi-4-IQ4_NL.gguf", "IQ4_NL"),
        ("big-Q6_K-00001-of-00002.gguf", "Q6_K"),
        ("model.gguf", "model.gguf"),
    ],
)
def test_the_quantisation_is_read_from_a_files_name(path: str, what: str) -> None:
    assert quantisation(path) == what


@pytest.mark.parametrize(
    ("wanted", "file"),
    [
        ("", "small-Q4_K_M.gguf"),
        (":Q8_0", "small-q8_0.gguf"),
        (":q4_k_m", "small-Q4_K_M.gguf"),
        (":small-q8_0.gguf", "small-q8_0.gguf"),
    ],
)
def test_a_model_is_downloaded_once_and_then_found_without_the_hub(here: Hub, wanted: str, file: str) -> None:
    announced: list[HubFile] = []
    progress: list[int] = []
    model = read_name(REPO + wanted)
    assert model
    path = fetched(model, announced.append, progress.append)
    assert path.name == file
    assert path.read_bytes() == FILES[file]
    assert [(each.path, each.size) for each in announced] == [(file, len(FILES[file]))]
    assert progress[0] == 0
    assert progress[-1] == len(FILES[file])
    asked = len(here.asked)
    assert fetched(model, announced.append, progress.append) == path
    assert len(here.asked) == asked


def test_the_cache_has_the_layout_of_the_hubs_own_library(here: Hub, home: Path) -> None:
    from huggingface_hub import try_to_load_from_cache

    path = fetch(REPO)
    found = try_to_load_from_cache(REPO, "small-Q4_K_M.gguf", cache_dir=home / "hub")
    assert Path(str(found)) == path
    assert path.is_symlink()
    assert path.parent.name == COMMIT
    assert file_digest(path) == f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # no note beside it


def test_what_the_hubs_own_library_downloaded_is_found(here: Hub, home: Path) -> None:
    blob = home / "hub" / "models--other--thing-GGUF" / "blobs" / "abc"
    link = blob.parent.parent / "snapshots" / COMMIT / "sub" / "thing-Q5_K_M.gguf"
    for folder in (blob.parent, link.parent):
        folder.mkdir(parents=True)
    blob.write_bytes(b"GGUF")
    link.symlink_to("../../../blobs/abc")
    assert fetch("other/thing-GGUF") == link
    assert cached(HubModel("other/thing-GGUF", "Q8_0")) is None
    blob.unlink()  # `hf cache` deleted it
    assert cached(HubModel("other/thing-GGUF", None)) is None
    assert not here.asked


def test_a_broken_connection_is_gone_on_with_at_once(here: Hub) -> None:
    here.cut_after = 300_000
    assert fetch(REPO).read_bytes() == CONTENT
    ranges = [asked.headers["range"] for asked in here.of("cdn")]
    assert ranges == ["bytes=0-", "bytes=300000-", "bytes=600000-", "bytes=900000-"]


@pytest.mark.parametrize("ranges", [True, False], ids=["with ranges", "a server that ignores them"])
def test_what_an_earlier_attempt_left_is_used(here: Hub, home: Path, ranges: bool) -> None:
    here.ranges = ranges
    left = part(home, CONTENT[:700_000])
    progress: list[int] = []
    assert fetch(REPO, progress).read_bytes() == CONTENT
    assert progress[0] == 700_000
    assert [asked.headers["range"] for asked in here.of("cdn")] == ["bytes=700000-"]
    assert not left.exists()


def test_a_whole_part_is_only_checked(here: Hub, home: Path) -> None:
    part(home, CONTENT)
    assert fetch(REPO).read_bytes() == CONTENT
    assert not here.of("cdn")


@pytest.mark.parametrize("left", [b"x" * 700_000, CONTENT + b"more"], ids=["other bytes", "too long"])
def test_a_part_of_something_else_does_not_survive(here: Hub, home: Path, left: bytes) -> None:
    part(home, left)
    if len(left) < len(CONTENT):
        with pytest.raises(EngineError, match=r"it was deleted\. Try again"):
            fetch(REPO)
    assert fetch(REPO).read_bytes() == CONTENT


def test_a_connection_that_brings_nothing_ends_the_attempt_and_keeps_the_part(here: Hub, home: Path) -> None:
    left = part(home, CONTENT[:700_000])
    here.cut_after = 0
    with pytest.raises(EngineError, match=r"broke off at 1 of 1 MB .* it goes on from there"):
        fetch(REPO)
    assert left.read_bytes() == CONTENT[:700_000]


@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({"sha256": "0" * 64}, "has the digest sha256:.* expected sha256:000.*it was deleted"),
        ({"size": 500}, "sends more than the 500 bytes"),
        ({"size": 10**15}, "too small: 1000000000 MB are needed, [0-9]+ MB are free"),
        ({"sha256": "../../x"}, "announces .* wrongly"),
        ({"sha256": None}, "announces .* wrongly"),
    ],
    ids=["digest", "longer", "disk", "path", "none"],
)
def test_a_wrong_announcement_leaves_nothing(here: Hub, home: Path, lies: dict[str, Any], words: str) -> None:
    here.lies = lies
    with pytest.raises(EngineError, match=words):
        fetch(REPO)
    assert sum(blobs(home).values()) == 0
    assert not list(home.glob("hub/*/snapshots/*/*"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("owner/nothing", r"has no model owner/nothing, or it is private \(no token was given\)"),
        (f"{REPO}:Q2_K", r"has no Q2_K; it has Q4_K_M, Q8_0: name one as owner/small-GGUF:NAME"),
        (f"{REPO}:Q6_K", r"Q6_K is split into several files, which burnish doesn't take; it has Q4_K_M, Q8_0"),
        (f"{REPO}:F16", "has no F16"),
        ("owner/safe", r"owner/safe has no GGUF file: name a repository that has some"),
        ("owner/split", r"owner/split is split into several files"),
        ("owner/gated-GGUF", r"is gated, and no token was given: accept its terms at .*/owner/gated-GGUF, then set"),
        ("owner/evil", "announces .* wrongly"),
        ("owner/absolute", "announces .* wrongly"),
    ],
)  # fmt: skip
def test_each_wrong_name_says_what_to_do(here: Hub, home: Path, name: str, words: str) -> None:
    here.repos |= {
        "owner/safe": {"model.safetensors": b""},
        "owner/split": {"a-Q8_0-00001-of-00002.gguf": b"GGUF"},
        "owner/gated-GGUF": {"a-Q8_0.gguf": b"GGUF"},
        "owner/evil": {"../../../../a-Q8_0.gguf": b"GGUF"},
        "owner/absolute": {"/tmp/a-Q8_0.gguf": b"GGUF"},
    }
    here.gated.add("owner/gated-GGUF")
    with pytest.raises(EngineError, match=words):
        fetch(name)
    assert sum(blobs(home).values()) == 0


@pytest.mark.parametrize("how", ["variable", "file"])
def test_the_token_never_reaches_the_cdn(
    here: Hub, home: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    here.gated.add(REPO)
    here.private.add(REPO)
    if how == "variable":
        monkeypatch.setenv("HF_TOKEN", TOKEN)
    else:  # `hf auth login` wrote it
        home.mkdir()
        (home / "token").write_text(TOKEN + "\n")
    fetch(REPO)
    assert {asked.headers.get("authorization") for asked in here.of("hub")} == {f"Bearer {TOKEN}"}
    assert here.of("cdn")
    assert not any("authorization" in asked.headers for asked in here.of("cdn"))


def test_a_token_that_is_refused_is_not_shown(here: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    here.private.add(REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    with pytest.raises(EngineError, match=r"the token was refused") as failed:
        fetch(REPO)
    assert "hf_another" not in str(failed.value)


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("HF_TOKEN", "hf_…", r"HF_TOKEN, .* has no token in it"),
        ("HF_ENDPOINT", "http://127.0.0.1:9", r":9 can't be reached .* name a GGUF file on this disk"),
        ("ALL_PROXY", "gopher://127.0.0.1:1", r"the proxy .* can't be used"),
    ],
)
def test_a_wrong_variable_is_named(
    here: Hub, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, words: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(EngineError, match=words):
        fetch(REPO)
    assert not here.asked


def test_a_file_that_was_deleted_is_downloaded_again(here: Hub, home: Path) -> None:
    path = fetch(REPO)
    path.resolve().unlink()
    assert fetch(REPO) == path
    assert path.read_bytes() == CONTENT


def test_a_hub_in_trouble_is_told_from_a_wrong_name(here: Hub) -> None:
    here.failing = 503
    with pytest.raises(EngineError, match="answered 503 Service Unavailable; try again later"):
        fetch(REPO)


def test_a_page_instead_of_an_answer_is_recognised(here: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    here.repos["owner/page"] = {}
    monkeypatch.setenv("HF_ENDPOINT", f"{here.cdn}")
    here.repos["api/models"] = {REPO: b"<html>please log in</html>"}
    with pytest.raises(EngineError, match="doesn't answer as the Hugging Face hub does"):
        fetch(REPO)


def test_offline_is_respected_and_the_cache_still_works(here: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(f"{REPO}:Q8_0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(here.asked)
    assert fetch(REPO).name == "small-q8_0.gguf"  # the only one that is here
    with pytest.raises(EngineError, match="HF_HUB_OFFLINE is set: unset it"):
        fetch("owner/other")
    assert len(here.asked) == asked


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub({}) as proxy:
        monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(EngineError, match=r"hub\.example has no model"):
            fetch(REPO)
    assert proxy.asked[0].path.startswith("http://hub.example/api/models/")


def test_two_downloads_of_one_file_do_not_mix(here: Hub, home: Path) -> None:
    left = part(home, b"")
    with left.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(EngineError, match="another burnish is downloading"):
            fetch(REPO)
    assert fetch(REPO).read_bytes() == CONTENT


def test_a_file_in_the_place_of_the_cache_is_named(here: Hub, home: Path) -> None:
    home.write_text("")
    with pytest.raises(EngineError, match=r"can't be written: .*; set HF_HOME"):
        fetch(REPO)
