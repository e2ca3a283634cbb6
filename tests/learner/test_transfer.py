"""Adapters come in and go out in three formats, through the routes and the commands that people use."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import gguf
import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.learner.test_foreign_engine import world
from tests.support.lora import tensors, write_peft
from tests.support.program import call
from tests.support.tiny_gguf import Shape, blank, tiny_lora
from tests.support.vllm_double import Engine

LLAMA = Shape("llama")
MODULE = "model.layers.0.self_attn.q_proj"


async def import_(http: httpx.AsyncClient, path: Path) -> httpx.Response:
    return await http.post("/burnish/adapters", json={"path": str(path)})


async def export(http: httpx.AsyncClient, number: int, path: Path, form: str) -> httpx.Response:
    return await http.post(f"/burnish/adapters/{number}/export", json={"path": str(path), "format": form})


def same(first: Path, second: Path) -> bool:
    one, two = (load_file(path / "adapter_model.safetensors") for path in (first, second))
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def directory(path: Path, module: str = MODULE) -> Path:
    """A Hugging Face directory of one layer, filled with zeros."""
    path.mkdir()
    (path / "config.json").write_text("{}")
    save_file({f"{module}.weight": np.zeros((8, 8), np.float32)}, path / "model.safetensors")
    return path


async def test_peft_to_gguf_and_back_and_live(tmp_path: Path) -> None:
    trained = write_peft(tmp_path / "trained", tiny_lora(LLAMA, 1))
    (trained / "README.md").write_text("as PEFT writes it")
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        made = await import_(http, trained)
        assert (made.status_code, made.json()["version"], made.json()["state"]) == (201, 1, "candidate")
        assert (await export(http, 1, tmp_path / "out.gguf", "gguf")).status_code == 200
        assert (await import_(http, tmp_path / "out.gguf")).json()["version"] == 2
        assert (await export(http, 2, tmp_path / "back", "peft")).status_code == 200
        assert same(trained, tmp_path / "back")
        assert (await http.post("/burnish/adapters/2/promote", json={})).json()["live"] == 2


async def test_peft_to_mlx_and_back(tmp_path: Path) -> None:
    trained = write_peft(tmp_path / "trained", tensors(4), target_modules=["q_proj"])
    base = directory(tmp_path / "base")
    async with world(tmp_path, Engine(), base) as http:
        assert (await import_(http, trained)).status_code == 201
        assert (await export(http, 1, tmp_path / "out", "mlx")).status_code == 200
        assert (tmp_path / "out" / "adapters.safetensors").is_file()
        assert (await import_(http, tmp_path / "out")).json()["version"] == 2
        assert (await export(http, 2, tmp_path / "back", "peft")).status_code == 200
        assert same(trained, tmp_path / "back")
        refused = await export(http, 1, tmp_path / "out.gguf", "gguf")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_gguf_base")


@pytest.mark.parametrize("trained", ["model.", "language_model.model.", "model.language_model."])
async def test_a_version_has_the_names_of_a_checkpoint_that_also_sees(trained: str, tmp_path: Path) -> None:
    stored = MODULE.replace("model.", "model.language_model.", 1)
    base = directory(tmp_path / "base", stored)
    matrices = {
        name.replace(f".{MODULE}", f".{trained}{MODULE[6:]}"): each for name, each in tensors(4).items()
    }
    adapter = write_peft(tmp_path / "trained", matrices, target_modules=["q_proj"])
    async with world(tmp_path, Engine(), base) as http:
        assert (await import_(http, adapter)).status_code == 201
        assert (await export(http, 1, tmp_path / "merged", "merged-hf")).status_code == 200
        assert (await export(http, 1, tmp_path / "out", "mlx")).status_code == 200
        eye = {
            name.replace(f".model.{trained}", ".model.model.visual.", 1): each
            for name, each in matrices.items()
        }
        refused = await import_(http, write_peft(tmp_path / "eye", eye, target_modules=["q_proj"]))
        assert "has no weight for model.visual" in refused.json()["error"]["message"]
    version = tmp_path / "data" / "adapters" / "v0001" / "adapter_model.safetensors"
    assert load_file(version).keys() == {f"base_model.model.{stored}.lora_{half}.weight" for half in "AB"}
    assert list(load_file(tmp_path / "merged" / "model.safetensors")) == [f"{stored}.weight"]
    written = load_file(tmp_path / "out" / "adapters.safetensors")
    assert written.keys() == {f"language_model.{MODULE}.lora_{half}" for half in "ab"}


async def test_merged_with_a_gguf_base(tmp_path: Path) -> None:
    trained = write_peft(tmp_path / "trained", tiny_lora(LLAMA, 1))
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        await import_(http, trained)
        written = await export(http, 1, tmp_path / "merged.gguf", "merged-gguf")
        assert written.status_code == 200, written.text
        merged = written.json()["merged"]
        assert (round(merged["kept"], 3), merged["precision"]) == (1, "")
        assert merged["size_bytes"] == (tmp_path / "merged.gguf").stat().st_size
        refused = await export(http, 1, tmp_path / "merged", "merged-hf")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_directory_base")
    written_tensors = gguf.GGUFReader(tmp_path / "merged.gguf").tensors
    [value] = [tensor for tensor in written_tensors if tensor.name == "blk.0.attn_v.weight"]
    weights = tiny_lora(LLAMA, 1)
    a, b = (weights[f"base_model.model.model.layers.0.self_attn.v_proj.lora_{half}.weight"] for half in "AB")
    np.testing.assert_allclose(value.data, b @ a, atol=1e-6)


async def test_merged_with_a_directory_as_base(tmp_path: Path) -> None:
    trained = write_peft(tmp_path / "trained", tensors(4), target_modules=["q_proj"])
    base = directory(tmp_path / "base")
    async with world(tmp_path, Engine(), base) as http:
        await import_(http, trained)
        assert (await export(http, 1, tmp_path / "out", "merged-hf")).status_code == 200
        refused = await export(http, 1, tmp_path / "out.gguf", "merged-gguf")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_gguf_base")
    [merged] = load_file(tmp_path / "out" / "model.safetensors").values()
    np.testing.assert_array_equal(merged, np.full((8, 8), 0.5 * 0.5 * 4 * 4 / 4, np.float32))
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"dtype": "float32"}


async def test_a_merge_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    base = directory(tmp_path / "base")
    (out := tmp_path / "out").mkdir()
    async with world(tmp_path, Engine(), base) as http:
        await import_(http, write_peft(tmp_path / "trained", tensors(4), target_modules=["q_proj"]))
        save_file({f"{MODULE}.weight": np.zeros((8, 8), np.uint8)}, base / "model.safetensors")
        refused = await export(http, 1, out / "merged", "merged-hf")
        assert refused.status_code == 409
        assert "is of type U8; merge into the full weights of the model" in refused.json()["error"]["message"]
        assert (await export(http, 0, out / "merged", "merged-hf")).status_code == 404
    assert not os.listdir(out)


async def test_what_cannot_be_imported_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    other = write_peft(tmp_path / "other", tensors(4))
    torn = write_peft(tmp_path / "torn", tiny_lora(LLAMA, 2))
    whole = (torn / "adapter_model.safetensors").read_bytes()
    (torn / "adapter_model.safetensors").write_bytes(whole[:-9])
    dora = write_peft(tmp_path / "dora", tiny_lora(LLAMA, 3), use_dora=True)
    nan = tiny_lora(LLAMA, 4)
    next(iter(nan.values()))[0, 0] = np.nan
    spoilt = write_peft(tmp_path / "nan", nan)
    (tmp_path / "words.gguf").write_text("no GGUF")
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        for path, words in (
            (other, "is for another model"),
            (torn, "damaged"),
            (dora, "use_dora"),
            (spoilt, "NaN"),
            (tmp_path / "words.gguf", "cannot be imported"),
            (tmp_path, "cannot be imported"),
        ):
            refused = await import_(http, path)
            assert refused.status_code == 422, path
            assert words in refused.json()["error"]["message"]
        assert (await import_(http, tmp_path / "nothing")).status_code == 404
        assert (await http.post("/burnish/adapters", json={"path": "relative"})).status_code == 422
        assert (await http.get("/burnish/adapters")).json()["adapters"] == []


async def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    bare = write_peft(tmp_path / "bare", tiny_lora(LLAMA, 1))
    weights = (bare / "adapter_model.safetensors").rename(tmp_path / "weights")
    numbered = Path(shutil.copytree(bare, tmp_path / "numbered"))
    for step in ("0000100", "0000200"):
        shutil.copyfile(weights, numbered / f"{step}_adapters.safetensors")
    pickled = Path(shutil.copytree(bare, tmp_path / "pickled"))
    (pickled / "adapter_model.bin").write_bytes(b"PK\x03\x04")
    unconfigured = write_peft(tmp_path / "unconfigured", tiny_lora(LLAMA, 1))
    (unconfigured / "adapter_config.json").unlink()
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        for path, words in (
            (
                numbered,
                "has no adapter_model.safetensors; rename the checkpoint that you want, such as 0000200_adapt",
            ),
            (
                pickled,
                "has no adapter_model.safetensors, only adapter_model.bin, which could run code; save it as",
            ),
            (
                bare,
                "has no adapter_model.safetensors; expected adapter_config.json, and adapter_model.safetensors",
            ),
            (unconfigured, "has no adapter_config.json; expected"),
        ):
            assert words in (await import_(http, path)).json()["error"]["message"]


async def test_what_engines_would_ignore_is_worked_into_the_weights(tmp_path: Path) -> None:
    """vLLM and SGLang scale every module by lora_alpha / r, whatever the patterns say."""
    tensors = tiny_lora(LLAMA, 1)
    path = write_peft(tmp_path / "patterned", tensors, lora_alpha=8, alpha_pattern={"(q_proj|v_proj)": 32})
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        assert (await import_(http, path)).status_code == 201
        assert (await export(http, 1, tmp_path / "out", "peft")).status_code == 200
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert not config.get("alpha_pattern") and not config.get("rank_pattern")
    written = load_file(tmp_path / "out" / "adapter_model.safetensors")
    for name, matrix in tensors.items():
        alpha = 32 if "q_proj" in name or "v_proj" in name else 8
        folded = alpha / config["lora_alpha"] if "lora_B" in name else 1
        np.testing.assert_array_equal(written[name], matrix * np.float32(folded))


async def test_what_is_no_regular_file_or_too_large_is_not_opened(tmp_path: Path) -> None:
    sound = write_peft(tmp_path / "sound", tiny_lora(LLAMA, 1))
    odd = {name: tmp_path / name for name in ("fifo", "device", "huge")}
    os.mkfifo(odd["fifo"])
    odd["device"].symlink_to("/dev/zero")
    with odd["huge"].open("wb") as sparse:
        sparse.truncate(20 * 1024**3)
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        for place in ("alone", "adapter_config.json", "adapter_model.safetensors", "adapters.safetensors"):
            for kind, file in odd.items():
                folder = Path(shutil.copytree(sound, tmp_path / f"{place}-{kind}"))
                if place != "alone":
                    (folder / place).unlink(missing_ok=True)
                    (folder / place).symlink_to(file)
                refused = await import_(http, file if place == "alone" else folder)
                assert refused.status_code == 422, (place, kind)
                words = "the limit is" if kind == "huge" else "is not a regular file"
                assert words in refused.json()["error"]["message"]
        assert (await import_(http, tmp_path / ("x" * 300))).status_code == 422
        nested = Path(shutil.copytree(sound, tmp_path / "nested"))
        (nested / "adapter_config.json").write_text("[" * 100_000)
        assert (await import_(http, nested)).status_code == 422
        linked = Path(shutil.copytree(sound, tmp_path / "linked"))  # as in the cache of the Hugging Face hub
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (linked / name).unlink()
            (linked / name).symlink_to(sound / name)
        assert (await import_(http, linked)).status_code == 201


async def test_what_cannot_be_exported_says_why(tmp_path: Path) -> None:
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        await import_(http, write_peft(tmp_path / "trained", tiny_lora(LLAMA, 1)))
        assert (await export(http, 7, tmp_path / "out", "peft")).status_code == 404
        assert (await export(http, 1, tmp_path / "no" / "out", "peft")).status_code == 404
        taken = await export(http, 1, tmp_path / "trained", "peft")
        assert (taken.status_code, taken.json()["error"]["code"]) == (409, "exists")
        assert (await export(http, 1, tmp_path / "out", "zip")).status_code == 422


async def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = write_peft(tmp_path / "trained", tiny_lora(LLAMA, 1))
    monkeypatch.chdir(tmp_path)

    async def run(*arguments: str) -> str:
        done = await asyncio.to_thread(call, "adapters", *arguments, url=str(http.base_url))
        assert done.returncode == 0, done.stderr
        return done.stdout

    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        assert "imported as v1" in await run("import", "trained", "--reason", "a gift")
        for form in ("gguf", "peft", "merged-gguf"):
            said = await run("export", "v1", f"as-{form}", "--as", form)
            assert ("written" in said, " MB)" in said) == (True, form == "merged-gguf")
            assert (tmp_path / f"as-{form}").exists()
        shown = json.loads(await run("show", "1", "--json"))
        assert shown["reason"] == "a gift"
    assert same(trained, tmp_path / "as-peft")


async def test_from_elsewhere_only_the_data_directory_is_read_and_written(tmp_path: Path) -> None:
    trained = write_peft(tmp_path / "trained", tiny_lora(LLAMA, 1))
    async with world(tmp_path, Engine(), blank(tmp_path / "base.gguf", LLAMA)) as http:
        assert (await import_(http, trained)).status_code == 201
        data = tmp_path / "data"
        (data / "link").symlink_to(tmp_path)
        http.headers["x-forwarded-for"] = "10.0.0.9"  # as a reverse proxy on this machine says
        for outside in (tmp_path / "out", data / "link" / "out", data / ".." / "out"):
            refused = await export(http, 1, outside, "peft")
            assert (refused.status_code, refused.json()["error"]["param"]) == (403, "path")
        assert (await import_(http, trained)).status_code == 403
        assert (await export(http, 1, data / "out", "peft")).status_code == 200
        assert (await import_(http, data / "out")).json()["version"] == 2
        del http.headers["x-forwarded-for"]
        for own in ("adapters/v0099", "jobs/x", "engine/x", "burnish.db-spill/x"):
            assert (await export(http, 1, data / own, "peft")).status_code == 403
        assert (await export(http, 1, tmp_path / "out", "peft")).status_code == 200
    assert not (data / "adapters" / "v0099").exists()
