"""`burnish models`, and models of a hub in `burnish up`: the whole program against a hub on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from burnish.adapters.catalogue import models
from burnish.adapters.convert.gguf_layout import untrainable
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.hosts.model_file import hub_model, model_file
from tests.support.burnish import running
from tests.support.hub import Hub, hub
from tests.support.inprocess import calling
from tests.support.patience import within
from tests.support.program import call, on_terminal
from tests.support.tiny_gguf import Shape, blank, random_model

REPO = "owner/SmolLM2-GGUF"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
STOP_AFTER = 30_000_000
ASKED = {"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": "What is tea?"}]}


def environment(home: Path, here: Hub | None = None) -> dict[str, str]:
    """Without a hub, nothing answers."""
    where = here.url if here else "http://127.0.0.1:9"
    return {"HF_HOME": str(home / "hf"), "HF_ENDPOINT": where, "HF_HUB_OFFLINE": "", "HF_TOKEN": ""}


def test_the_list_shows_what_fits_and_what_is_here(tmp_path: Path) -> None:
    ensure_small_model()
    done = call("models", env=environment(tmp_path) | {"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    rows = {
        line.split()[1]: line
        for line in done.stdout.splitlines()
        if line[:2].strip(" ✓↓") == "" and len(line.split()) > 7
    }
    assert rows["smollm2"].startswith("✓↓")
    assert "chat code" in rows["qwen3-4b"]
    assert {model.name for model in models()} <= rows.keys()
    assert max(map(len, rows.values())) <= 80
    assert "↓" not in rows["qwen3-0.6b"]
    assert "Qwen Research" in rows["qwen2.5-coder-3b"]


def test_the_list_as_json_by_task(tmp_path: Path) -> None:
    snapshot = tmp_path / "hf" / "hub" / "models--Qwen--Qwen3-4B-GGUF" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "Qwen3-4B-Q4_K_M.gguf").write_bytes(b"GGUF")
    done = call("models", "--json", "--task", "code", env=environment(tmp_path))
    listed = {each["name"]: each for each in json.loads(done.stdout)}
    assert set(listed) == {model.name for model in models() if "code" in model.tasks}
    assert listed["qwen3-4b"]["path"] == str(snapshot / "Qwen3-4B-Q4_K_M.gguf")
    assert listed["qwen3-4b"]["fits"] in (True, False)
    assert listed["phi-4"]["learns"] is False
    assert listed["phi-4"]["memory_bytes"] > 9.05e9
    assert listed["phi-4"]["checked"] == "2026-11-25"
    assert (listed["phi-3-mini"]["sampling"], listed["phi-3-mini"]["max_tokens"]) == ({"temperature": 0}, 500)
    assert listed["phi-3-mini"]["lora"] is None
    lora = listed["qwen2.5-coder-0.5b"]["lora"]
    assert (lora["rank"], lora["alpha"], lora["targets"]) == (16, 16, [])
    assert lora["learning_rate"] == pytest.approx(4e-4 * (576 / 896) ** 0.78)


def test_an_unknown_task_names_the_known_ones(tmp_path: Path) -> None:
    done = call("models", "--task", "poetry", env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "'poetry'; expected chat, code, text" in done.stderr


def start(folder: Path, env: Mapping[str, str], *flags: str) -> subprocess.Popen[str]:
    """`burnish up`, as far as it comes."""
    up = ("up", "--port", "0", "--data-dir", str(folder / "data"), *flags)
    return subprocess.Popen(
        [sys.executable, "-m", "burnish", *up],
        env={**os.environ, **env, "COLUMNS": "300"}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_a_download_that_was_killed_goes_on_and_the_model_answers(tmp_path: Path) -> None:
    content = ensure_small_model().read_bytes()
    with hub({REPO: {FILE: content}}, cut_after=STOP_AFTER, stopped=threading.Event()) as here:
        assert here.stopped
        env = environment(tmp_path, here)
        first = start(tmp_path, env, "--model", f"{REPO}:Q4_1")
        assert here.stopped.wait(within(60))
        first.kill()
        said, _ = first.communicate()
        assert f"downloading {FILE} of {REPO} from {here.url.removeprefix('http://')}, 98 MB" in said
        assert "Traceback" not in said
        [left] = (tmp_path / "hf").glob("hub/*/blobs/*.incomplete")
        begun = left.stat().st_size
        assert content[:begun] == left.read_bytes()
        here.stopped = here.cut_after = None
        with running(tmp_path / "data", "--model", f"{REPO}:Q4_1", "--no-train", env=env) as burnish:
            assert [asked.headers["range"] for asked in here.of("cdn")] == ["bytes=0-", f"bytes={begun}-"]
            assert not left.exists()
            assert "98 of 98 MB" in burnish.log_file.read_text()
            name = "smollm2-135m-instruct.q4_1"
            url, body = f"{burnish.url}/v1/chat/completions", ASKED | {"model": name}
            answer = httpx.post(url, json=body, timeout=within(120))
            assert answer.status_code == 200, answer.text
    # Without the hub, out of the cache: also as a file that somebody else finds.
    with running(tmp_path / "data", "--model", REPO, "--no-train", env=environment(tmp_path)) as burnish:
        listed = httpx.get(f"{burnish.url}/v1/models", timeout=within(60)).json()["data"]
    assert name in [each["id"] for each in listed]


def test_ctrl_c_leaves_the_part_for_the_next_time(tmp_path: Path) -> None:
    content = b"GGUF" + bytes(STOP_AFTER * 2)
    with hub({REPO: {FILE: content}}, cut_after=STOP_AFTER, stopped=threading.Event()) as here:
        assert here.stopped
        process = start(tmp_path, environment(tmp_path, here), "--model", REPO)
        assert here.stopped.wait(within(60))
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=within(60))
    assert process.returncode == 130
    assert said.endswith("stopped; the next start goes on with what is here\n")
    [left] = (tmp_path / "hf").glob("hub/*/blobs/*.incomplete")
    assert left.stat().st_size > 0


def test_a_terminal_shows_a_bar_only_while_something_comes(tmp_path: Path) -> None:
    with hub({REPO: {FILE: b"GGUF" + bytes(2_999_996)}}) as here:
        up = ("up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--model", REPO)
        with on_terminal(*up, env=environment(tmp_path, here), columns=200) as (screen, _):
            before, _, after = screen.until("the model is in").partition(f"downloading {FILE} of {REPO}")
    assert "0/" not in before
    assert "3.0/3.0 MB" in after


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("qwen3-0.6", "no model is called 'qwen3-0.6': did you mean qwen3-0.6b"),
        ("zzz", "no model is called 'zzz': `burnish models` lists some"),
        ("owner/nothing", "has no model owner/nothing, or it is private (no token was given)"),
        (f"{REPO}:Q9", f"{REPO} has no Q9; it has Q4_1"),
    ],
)
def test_a_wrong_name_is_one_line_and_nothing_starts(tmp_path: Path, named: str, words: str) -> None:
    with hub({REPO: {FILE: b"GGUF"}}) as here:
        done = call(
            "up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--model", named,
            env=environment(tmp_path, here) | {"COLUMNS": "400"},
        )  # fmt: skip
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "data" / "server.json").exists()


def test_a_name_in_the_list_means_a_file_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert str(hub_model("Qwen3-0.6B")) == "Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0.gguf"
    assert hub_model("smollm2") is None
    assert model_file("smollm2") == model_file(None)
    with pytest.raises(EngineError, match="isn't downloaded yet: `burnish up --model qwen3"):
        model_file("qwen3-0.6b")


@pytest.mark.parametrize("architecture", ["phi3", "qwen3moe", "gemma", "llama", "qwen3"])
def test_only_an_architecture_that_cannot_be_trained_is_named(tmp_path: Path, architecture: str) -> None:
    why = untrainable(blank(tmp_path / "m.gguf", Shape(architecture)))
    named = f"its architecture is {architecture}, and burnish trains only gemma2, gemma3, llama"
    assert (why or "").startswith(named) is (architecture not in ("llama", "qwen3"))


async def test_a_model_that_cannot_learn_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = random_model(tmp_path / "m.gguf", Shape("mistral3", head_dim=16))
    async with calling(tmp_path, model=str(model), engine="auto") as http:
        assert "m is served, but can't learn: its architecture is mistral3" in caplog.text
        assert (await http.post("/v1/chat/completions", json=ASKED)).status_code == 200
        state = (await http.get("/burnish/status")).json()
        assert "this model can't learn: its architecture is mistral3" in state["learner"]["reason"]
        refused = await http.post("/burnish/train", json={})
        assert refused.status_code == 409
        assert "this model can't learn" in refused.json()["error"]["message"]
