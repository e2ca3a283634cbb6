from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from burnish.system import memory


def test_a_container_has_what_its_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.available_bytes() == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 200000\n")
    for limit, left in (("1000000\n", 500_000), ("400000\n", 0)):
        (tmp_path / "memory.max").write_text(limit)
        assert memory.available_bytes() == left
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() != 500_000
