"""A start that does not fit into memory is refused, with the number to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.runtime.memory import ENGINE_BYTES, WORKER_BYTES, Need, memory_limit, process_figures, require_memory, weight_bytes
from schemas.errors import SetupError

_MB = 1024 * 1024


def _root(path: Path, cgroup: str, **files: str) -> Path:
    (path / "proc/self").mkdir(parents=True)
    (path / "proc/meminfo").write_text("MemTotal:        8388608 kB\nMemFree: 1 kB\n")
    (path / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        file = path / "sys/fs/cgroup" / name.replace("__", "/").replace("_in_", ".limit_in_").replace("_max", ".max")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def test_limit_of_version_2_is_the_smallest_on_the_way_up(tmp_path: Path) -> None:
    """The parent's limit binds."""
    root = _root(tmp_path, "0::/pod/box\n", pod__box__memory_max="max", pod__memory_max=str(512 * _MB))
    assert memory_limit(root) == 512 * _MB


def test_limit_of_version_1_is_found_and_its_no_limit_ignored(tmp_path: Path) -> None:
    """The number that means "none" is not a limit; the machine's memory is."""
    root = _root(tmp_path, "4:memory:/x\n", memory__memory_in_bytes=str(9223372036854771712))
    assert memory_limit(root) == 8192 * _MB
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text(str(700 * _MB))
    assert memory_limit(root) == 700 * _MB


def test_what_fits_with_a_fifth_to_spare_starts() -> None:
    """The bound itself is allowed, one byte less is not."""
    needs = [Need("models[0]", 100 * _MB, 512 * _MB)]
    total = WORKER_BYTES + ENGINE_BYTES + 612 * _MB
    require_memory(needs, int(total / 0.8) + 1)
    with pytest.raises(SetupError):
        require_memory(needs, int(total / 0.8) - 2)


def test_refusal_names_a_cache_size_that_works() -> None:
    """Following the advice makes the start fit."""
    limit = 1200 * _MB
    with pytest.raises(SetupError, match=r"set models\[0\].kv_cache_mb to (\d+) or less") as caught:
        require_memory([Need("models[0]", 100 * _MB, 900 * _MB)], limit)
    advised = int(str(caught.value).split("kv_cache_mb to ")[1].split(" ")[0])
    require_memory([Need("models[0]", 100 * _MB, advised * _MB)], limit)


def test_refusal_without_a_cache_size_that_works_asks_for_memory() -> None:
    """When no cache would fit either, the limit is what must change."""
    with pytest.raises(SetupError, match="raise the limit to"):
        require_memory([Need("models[0]", 5000 * _MB, 10 * _MB)], 1000 * _MB)


def test_own_figures_are_real() -> None:
    """A Python process has some megabytes resident."""
    assert process_figures().rss_bytes > 5 * _MB


def test_weights_are_counted_from_the_files(tmp_path: Path) -> None:
    """Folders by their .bin, files by themselves, scripted by nothing."""
    (tmp_path / "openvino_model.bin").write_bytes(b"x" * 100)
    (tmp_path / "openvino_model.xml").write_bytes(b"x" * 50)
    (tmp_path / "m.gguf").write_bytes(b"x" * 70)
    assert weight_bytes(str(tmp_path)) == 100
    assert weight_bytes(str(tmp_path / "m.gguf")) == 70
    assert weight_bytes("") == 0
