from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.fetch import file_digest
from burnish.adapters.hosts.model_file import ModelFile, model_file
from burnish.adapters.hosts.ollama_store import names, stores
from tests.support.ollama_store import LIBRARY, layer, listing, pulled
from tests.support.tiny_gguf import random_llama


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_llama(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def refusal(name: str) -> str:
    with pytest.raises(EngineError) as caught:
        model_file(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "place", "served"),
    [
        ("qwen3:0.6b", f"{LIBRARY}/qwen3/0.6b", "qwen3:0.6b"),
        ("qwen3", f"{LIBRARY}/qwen3/latest", "qwen3"),
        ("qwen3:latest", f"{LIBRARY}/qwen3/latest", "qwen3"),
        ("me/mine:v2", "registry.ollama.ai/me/mine/v2", "me/mine:v2"),
        ("hf.co/me/Tiny-GGUF:Q8_0", "hf.co/me/Tiny-GGUF/Q8_0", "hf.co/me/Tiny-GGUF:Q8_0"),
        ("box.lan:5000/team/tiny", "box.lan:5000/team/tiny/latest", "box.lan:5000/team/tiny"),
    ],
)
def test_a_name_is_read_as_in_ollama(name: str, place: str, served: str, store: Path, gguf: Path) -> None:
    _, blob = pulled(store, gguf, place)
    assert model_file(f"ollama:{name}") == ModelFile(blob, served, [])
    assert names() == [served]


def test_the_digest_is_the_blobs_name_and_ollamas_store_stays_as_it_was(store: Path, gguf: Path) -> None:
    _, blob = pulled(store, gguf)
    before = sorted(store.rglob("*"))
    found = model_file("ollama:qwen3:0.6b").path
    assert file_digest(found) == blob.name.replace("-", ":") == file_digest(gguf)
    assert sorted(store.rglob("*")) == before


def test_a_store_is_looked_for_where_ollama_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert stores() == (tmp_path / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models"))


def test_what_only_ollama_applies_is_named(store: Path, gguf: Path) -> None:
    pulled(store, gguf, template="{{ .Prompt }}", license="MIT")
    assert model_file("ollama:qwen3:0.6b").left_out == []
    pulled(store, gguf, system="You are Mario.", params="{}", projector="sees")
    assert model_file("ollama:qwen3:0.6b").left_out == ["system prompt", "parameters", "part for images"]


def test_a_model_that_is_not_there_is_named_with_those_that_are(store: Path, gguf: Path) -> None:
    assert "Ollama has no models here, neither qwen3:8b nor others" in refusal("ollama:qwen3:8b")
    pulled(store, gguf)
    pulled(store, gguf, f"{LIBRARY}/smollm2-burnish/v1-00000000")
    reason = "has no model 'qwen3:8b' here; it has qwen3:0.6b. To get it: ollama pull qwen3:8b"
    assert reason in refusal("ollama:qwen3:8b")


@pytest.mark.parametrize(
    "name", ["", ":", "a:", "../../etc/passwd", "a/../b", "a/b/c/d:e", "a b", "/a", "a:b:c"]
)
def test_what_is_no_name_reads_no_file(name: str, store: Path, gguf: Path) -> None:
    pulled(store, gguf)
    assert "isn't the name of a model of Ollama" in refusal(f"ollama:{name}")


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ("{", "is damaged (Expecting"),
        ("[]", "it has no valid list of layers"),
        ('{"layers": [{"mediaType": "x"}]}', "it has no valid list of layers"),
        ('{"layers": []}', "has no GGUF: it runs in Ollama's cloud"),
    ],
)
def test_a_damaged_manifest(manifest: str, says: str, store: Path, gguf: Path) -> None:
    path, _ = pulled(store, gguf)
    path.write_text(manifest)
    assert says in refusal("ollama:qwen3:0.6b")


@pytest.mark.parametrize("digest", ["sha256:../../../../etc/passwd", "sha256:12", "md5:" + "0" * 64])
def test_a_digest_leads_nowhere_else(digest: str, store: Path) -> None:
    listing(store, f"{LIBRARY}/qwen3/0.6b", [layer("model", b"") | {"digest": digest}])
    assert "isn't a digest" in refusal("ollama:qwen3:0.6b")


def test_a_download_that_is_not_whole(store: Path, gguf: Path) -> None:
    _, blob = pulled(store, gguf)
    size = gguf.stat().st_size
    blob.unlink()
    blob.write_bytes(gguf.read_bytes()[: size // 2])
    assert f"has {size // 2:,} of {size:,} bytes" in refusal("ollama:qwen3:0.6b")
    blob.rename(f"{blob}-partial")
    assert f"{blob} is missing; run: ollama pull qwen3:0.6b" in refusal("ollama:qwen3:0.6b")


@pytest.mark.parametrize(
    ("kind", "says"), [("adapter", "base model with an adapter"), ("model", "split into 2 files")]
)
def test_layers_that_the_embedded_engine_cannot_join(kind: str, says: str, store: Path, gguf: Path) -> None:
    content = gguf.read_bytes()
    pulled(store, gguf)
    listing(store, f"{LIBRARY}/qwen3/0.6b", [layer("model", content), layer(kind, b"more")])
    assert says in refusal("ollama:qwen3:0.6b")


def test_a_file_that_is_no_gguf_or_has_no_template(store: Path, gguf: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"tjgg" + bytes(100))
    pulled(store, other)
    assert "isn't a GGUF that burnish can read" in refusal("ollama:qwen3:0.6b")
    # The same file with another key instead.
    other.write_bytes(gguf.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templat_"))
    pulled(store, other)
    assert "has no chat template in its GGUF" in refusal("ollama:qwen3:0.6b")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_store_that_is_closed_says_how_to_open_it(store: Path, gguf: Path) -> None:
    manifest, _ = pulled(store, gguf)
    for closed, mode, remedy in ((store, 0o755, "a+rx"), (manifest, 0o644, "a+r")):
        closed.chmod(0)
        try:
            said = refusal("ollama:qwen3:0.6b")
        finally:
            closed.chmod(mode)
        assert re.search(rf"closed to you at {closed};.*sudo chmod {re.escape(remedy)} {closed}$", said)
