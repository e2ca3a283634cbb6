from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.errors import CorruptAdapter, IllegalTransition, UnknownVersion
from burnish.adapters.registry import EVENTS, Registry
from tests.adapters.engines import full_disk
from tests.support.lora import LAYER, register, tensors, write_adapter


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "adapter")


def test_nothing_trained_means_the_base_model_is_live(registry: Registry) -> None:
    assert registry.versions() == []
    assert registry.live() == 0
    assert registry.previous_live() is None
    assert registry.events() == []
    assert not registry.root.exists(), "reading must not write"


def test_a_registered_version_is_a_candidate_with_its_provenance(registry: Registry, adapter: Path) -> None:
    version = register(registry, adapter, feedback_ids=["fb_1", "fb_2"], hyperparameters={"rank": 2})
    assert (version.number, version.state, version.served_name) == (1, "candidate", "smollm2@v1")
    assert version.manifest.feedback_ids == ("fb_1", "fb_2")
    assert version.manifest.hyperparameters == {"rank": 2}
    assert Registry(registry.root).get(1) == version, "another process reads the same"
    stored, trained = (path / "adapter_config.json" for path in (version.path, adapter))
    assert stored.read_bytes() == trained.read_bytes()
    registry.verify(1)


def test_files_are_private_whatever_the_umask(registry: Registry, adapter: Path) -> None:
    before = os.umask(0)
    try:
        version = register(registry, adapter)
    finally:
        os.umask(before)
    for path in [registry.root, version.path]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in [*version.path.iterdir(), registry.root / EVENTS]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_last_live_event_decides_and_retires_the_one_before(registry: Registry, adapter: Path) -> None:
    for _ in range(2):
        register(registry, adapter)
    registry.record(1, "live", "passed the gate")
    registry.record(2, "live", "passed the gate", margin=0.2)
    assert registry.live() == 2
    assert [(v.number, v.state) for v in registry.versions()] == [(1, "retired"), (2, "live")]
    assert registry.get(1).reason == "v2 is live instead"
    assert registry.events(2)[-1].details == {"margin": 0.2}
    registry.record(0, "live", "rolled back")
    assert registry.live() == 0
    assert registry.get(2).state == "retired"
    assert registry.get(2).reason == "the base model is live instead"


@pytest.mark.parametrize(
    ("went_live", "previous"),
    [
        ([1], 0),
        ([1, 2], 1),
        ([1, 2, 1], 0),
        ([1, 2, 0], None),
        ([1, 2, 3, 1, 3], 1),
        ([1, 1, 2, 2], 1),
        ([], None),
    ],
)
def test_undoing_goes_back(
    registry: Registry, adapter: Path, went_live: list[int], previous: int | None
) -> None:
    for _ in range(3):
        register(registry, adapter)
    for number in went_live:
        registry.record(number, "live", "test")
    assert registry.previous_live() == previous


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ([], "retired"),
        (["rejected"], "candidate"),
        (["rejected"], "retired"),
        (["live"], "rejected"),
        (["live"], "retired"),
        (["live"], "candidate"),
    ],
)
def test_impossible_changes_leave_no_trace(
    registry: Registry, adapter: Path, path: list[Any], refused: Any
) -> None:
    register(registry, adapter)
    for state in path:
        registry.record(1, state, "test")
    before = (registry.root / EVENTS).read_bytes()
    with pytest.raises(IllegalTransition, match=f"v1 is .* and can't become {refused}"):
        registry.record(1, refused, "test")
    assert (registry.root / EVENTS).read_bytes() == before


def test_a_rejected_version_may_be_forced_live(registry: Registry, adapter: Path) -> None:
    register(registry, adapter)
    registry.record(1, "rejected", "gibberish")
    registry.record(1, "live", "forced")
    assert registry.live() == 1
    with pytest.raises(IllegalTransition):
        registry.record(0, "rejected", "test")


def test_unknown_versions_are_named_with_what_there_is(registry: Registry, adapter: Path) -> None:
    register(registry, adapter)
    with pytest.raises(UnknownVersion, match=r"no version 7 \(versions: v1\)"):
        registry.get(7)
    with pytest.raises(UnknownVersion):
        registry.record(7, "live", "test")


def test_numbers_are_never_used_again(registry: Registry, adapter: Path) -> None:
    register(registry, adapter)
    second = register(registry, adapter)
    for path in second.path.iterdir():
        path.unlink()
    second.path.rmdir()
    assert [v.number for v in registry.versions()] == [1]
    assert register(registry, adapter).number == 3


def test_a_crash_between_rename_and_event_is_repaired(registry: Registry, adapter: Path) -> None:
    register(registry, adapter)
    version = register(registry, adapter)
    lines = (registry.root / EVENTS).read_bytes().splitlines(keepends=True)
    (registry.root / EVENTS).write_bytes(lines[0])
    (registry.root / "v0003.tmp").mkdir()
    (registry.root / "v0003.tmp" / "adapter_model.safetensors").write_bytes(b"half")
    assert [v.number for v in registry.versions()] == [1]
    registry.recover()
    assert [v.number for v in registry.versions()] == [1, version.number]
    assert "interrupted" in registry.get(2).reason
    assert not list(registry.root.glob("*.tmp"))


@given(cut=st.integers(min_value=1), junk=st.binary(max_size=8))
def test_a_line_torn_at_any_place_is_ignored_and_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    root = tmp_path_factory.mktemp("registry")
    registry = Registry(root)
    registry.record(0, "live", "one")
    kept = (root / EVENTS).read_bytes()
    registry.record(0, "live", "two")
    torn = (root / EVENTS).read_bytes()[len(kept) :]
    torn = torn[: cut % len(torn)] + junk.replace(b"\n", b"\0")
    (root / EVENTS).write_bytes(kept + torn)
    assert [event.reason for event in registry.events()] == ["one"]
    registry.record(0, "live", "three")
    assert [event.reason for event in registry.events()] == ["one", "three"]


def test_damage_before_the_last_line_is_not_overlooked(registry: Registry, adapter: Path) -> None:
    register(registry, adapter)
    registry.record(1, "live", "test")
    path = registry.root / EVENTS
    path.write_bytes(b"\0" * 10 + path.read_bytes()[10:])
    with pytest.raises(CorruptAdapter, match="restore it from a backup"):
        registry.live()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_history_that_goes_while_burnish_runs_is_written_again(
    registry: Registry, adapter: Path, spoil: Callable[[Path], object]
) -> None:
    registry.recover()
    register(registry, adapter)
    registry.record(1, "live", "test")
    path = registry.root / EVENTS
    content = path.read_bytes()
    spoil(path)
    assert registry.live() == 1
    assert (registry.restore(), registry.restore()) == (True, False)
    assert path.read_bytes() == content
    spoil(path)
    registry.record(0, "live", "back")
    assert path.read_bytes().startswith(content)
    assert Registry(registry.root).live() == 0


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_lost_history_is_told_until_a_choice(registry: Registry, adapter: Path, chosen: int) -> None:
    register(registry, adapter)
    registry.record(1, "live", "test")
    (registry.root / EVENTS).unlink()
    for _ in range(2):  # it is told after another start, too
        again = Registry(registry.root)
        again.recover()
        assert (again.live(), again.get(1).state) == (0, "candidate")
        assert "had been deleted or emptied" in (again.lost() or "")
    again.record(chosen, "live", "by hand")
    assert again.lost() is None


def test_kill_9_leaves_whole_versions_and_a_readable_history(tmp_path: Path, adapter: Path) -> None:
    root = tmp_path / "adapters"
    script = textwrap.dedent(f"""
        from pathlib import Path
        from burnish.adapters.manifest import Provenance
        from burnish.adapters.registry import Registry
        registry = Registry(Path({str(root)!r}))
        registry.recover()
        print("ready", flush=True)
        while True:
            version = registry.register(Path({str(adapter)!r}), Provenance(base_model="m", base_digest="d", parent=0,
                run_id="r", feedback_ids=(), objective="mis_po", hyperparameters={{}}, metrics={{}}))
            registry.record(version.number, "live", "test")
            print(version.number, flush=True)
    """)
    registry, acknowledged = Registry(root), 0
    for round_ in range(8):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        for _ in range(3):
            acknowledged = int(child.stdout.readline())
        signal.sigtimedwait([], 0.002 * round_)
        child.kill()
        rest, _ = child.communicate()
        whole = [int(line) for line in rest.splitlines(keepends=True) if b"\n" in line]
        acknowledged = max([acknowledged, *whole])
        registry.recover()
        assert registry.live() >= acknowledged
        numbers = [version.number for version in registry.versions()]
        assert len(numbers) == len(set(numbers))
        for number in numbers:
            registry.verify(number)


def test_a_full_disk_leaves_no_new_version_and_no_torn_history(registry: Registry, adapter: Path) -> None:
    register(registry, adapter)
    before = (registry.root / EVENTS).read_bytes()
    large = write_adapter(adapter.parent / "large", tensors(rank=512))
    with full_disk(len(before) + 20):
        with pytest.raises(OSError) as copying:
            register(registry, large)
        with pytest.raises(OSError) as recording:
            registry.record(1, "live", "test")
    assert copying.value.errno == recording.value.errno == errno.EFBIG
    assert (registry.root / EVENTS).read_bytes() == before
    assert sorted(path.name for path in registry.root.iterdir()) == [EVENTS, "v0001"]


@pytest.mark.parametrize("wrong", [Path.touch, lambda root: (root / EVENTS).mkdir(parents=True)])
def test_a_history_that_is_no_file_is_damaged(registry: Registry, wrong: Callable[[Path], object]) -> None:
    wrong(registry.root)
    with pytest.raises(CorruptAdapter, match=r"events\.jsonl cannot be read"):
        registry.live()


def test_changed_files_are_noticed(registry: Registry, adapter: Path) -> None:
    version = register(registry, adapter)
    weights = version.path / "adapter_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CorruptAdapter, match=r"adapter_model.safetensors has changed"):
        registry.verify(1)
    (version.path / "evil.py").write_text("import os")
    with pytest.raises(CorruptAdapter, match=r"evil.py"):
        registry.verify(1)


def test_a_damaged_manifest_hides_no_other_version(registry: Registry, adapter: Path) -> None:
    register(registry, adapter)
    broken = register(registry, adapter)
    (broken.path / "manifest.json").write_text("{")
    assert [v.number for v in registry.versions()] == [1]
    with pytest.raises(CorruptAdapter, match=r"manifest.json cannot be read"):
        registry.get(2)


def spoil(directory: Path, factor: str, value: float, place: Any = (0, 0), dtype: Any = np.float32) -> None:
    """Write both factors, with this value at one place of one of them."""
    weights = {name: tensor.astype(dtype) for name, tensor in tensors().items()}
    weights[f"{LAYER}.{factor}.weight"][place] = value
    write_adapter(directory, weights)


def bfloat(directory: Path, pattern: int, name: str = "lora_A") -> None:
    """Write both factors as BF16; one number of one of them has this bit pattern."""
    entries, content = {}, b""
    for factor, shape in (("lora_A", [2, 8]), ("lora_B", [8, 2])):
        numbers = np.full(16, 0x3F00, "<u2")
        numbers[3] = pattern if factor == name else numbers[3]
        offsets = [len(content), len(content) + numbers.nbytes]
        entries[f"{LAYER}.{factor}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": offsets}
        content += numbers.tobytes()
    raw(directory, entries, content)


def raw(directory: Path, header: Any, content: bytes, length: int | None = None) -> None:
    encoded = json.dumps(header).encode()
    size = len(encoded) if length is None else length
    (directory / "adapter_model.safetensors").write_bytes(size.to_bytes(8, "little") + encoded + content)


def config(directory: Path, content: str) -> None:
    (directory / "adapter_config.json").write_text(content)


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"x.lora_A.weight": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def resize(directory: Path, by: int) -> None:
    weights = directory / "adapter_model.safetensors"
    os.truncate(weights, weights.stat().st_size + by)


def link(directory: Path) -> None:
    path = directory / "adapter_config.json"
    path.rename(directory.parent / "elsewhere.json")
    path.symlink_to(directory.parent / "elsewhere.json")


def fifo(directory: Path) -> None:
    (directory / "adapter_config.json").unlink()
    os.mkfifo(directory / "adapter_config.json")


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (lambda d: d.rename(d.parent / "gone"), "cannot read"),
    "no weights": (lambda d: (d / "adapter_model.safetensors").unlink(), "has no adapter_model.safetensors"),
    "readme": (lambda d: (d / "README.md").write_text("hi"), "'README.md'"),
    "pickle": (lambda d: (d / "adapter_model.bin").write_bytes(b"\x80"), r"'adapter_model.bin'"),
    "python": (lambda d: (d / "modeling.py").write_text("import os"), r"'modeling.py'"),
    "folder": (lambda d: (d / "sub").mkdir(), "'sub'"),
    "link": (link, "links are refused"),
    "fifo": (fifo, "not a regular file"),
    "config is no JSON": (lambda d: config(d, "{"), "is not JSON"),
    "config nests without end": (lambda d: config(d, "[" * 100_000), "is not JSON"),
    "config is a list": (lambda d: config(d, "[]"), "JSON list, expected an object"),
    "config is huge": (lambda d: config(d, " " * (1024**2 + 1)), "limit 1048576"),
    "not a LoRA": (lambda d: config(d, '{"peft_type": "IA3", "r": 2}'), "peft_type is 'IA3'"),
    "no rank": (lambda d: config(d, '{"peft_type": "LORA"}'), "rank r is None"),
    "rank is true": (lambda d: config(d, '{"peft_type": "LORA", "r": true}'), "rank r is True"),
    "NaN": (lambda d: spoil(d, "lora_A", np.nan, (1, 3)), "NaN or infinite"),
    "infinite half": (lambda d: spoil(d, "lora_B", -np.inf, dtype=np.float16), "NaN or infinite"),
    "BF16 NaN": (lambda d: bfloat(d, 0x7FC0), "NaN or infinite"),
    "BF16 -inf": (lambda d: bfloat(d, 0xFF80, "lora_B"), "NaN or infinite"),
    "nothing learnt": (lambda d: spoil(d, "lora_B", -0.0, slice(None)), "every lora_B is zero"),
    "empty file": (lambda d: (d / "adapter_model.safetensors").write_bytes(b""), "is cut, damaged"),
    "a header of exabytes": (lambda d: raw(d, {}, b"", 2**60), "is cut, damaged"),
    "header is no JSON": (lambda d: raw(d, {}, b"xxxx", 4), "is cut, damaged"),
    "no tensors": (lambda d: raw(d, {}, b""), "no lora_A"),
    "no lora_B": (lambda d: raw(d, entry(), b"\0\0\x80\x3f"), "no lora_B"),
    "cut": (lambda d: resize(d, -1), "is cut, damaged"),
    "appended": (lambda d: resize(d, 1), "is cut, damaged"),
    "integers": (lambda d: raw(d, entry("I32"), b"\0\0\0\1"), "dtype 'I32'"),
    "a gap": (lambda d: raw(d, entry(offsets=[4, 8]), b"\0" * 8), "is cut, damaged"),
    "an empty tensor": (lambda d: raw(d, entry(shape=[0], offsets=[0, 0]), b""), "is empty"),
}


@pytest.mark.parametrize("damage", BAD)
def test_bad_adapters_are_refused_with_the_reason(registry: Registry, adapter: Path, damage: str) -> None:
    damaging, message = BAD[damage]
    damaging(adapter)
    with pytest.raises(CorruptAdapter, match=message):
        register(registry, adapter)
    assert registry.versions() == []
    assert list(registry.root.iterdir()) == []


def test_bf16_is_read_right(registry: Registry, adapter: Path) -> None:
    bfloat(adapter, 0x7F7F)  # the largest finite number
    assert register(registry, adapter).number == 1
