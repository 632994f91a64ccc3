"""Sizes read from files without loading them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from agents.models.shapes import UNKNOWN_CONTEXT_TOKENS, Shape, read_gguf_shape, read_ir_shape
from schemas.errors import SetupError
from tests.agents.models.tiny import write_folder, write_gguf

LLAMA: dict[str, int | str] = {
    "general.architecture": "llama",
    "llama.context_length": 8192,
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
}


def test_ir_counts_each_cache_variable_once(tmp_path: Path) -> None:
    """A variable is named where it is read and where it is written; its heads count once."""
    assert read_ir_shape(write_folder(tmp_path / "m")) == Shape(4096, 1, 3, 64, 2 * 3 * 64)


@pytest.mark.parametrize("config", [None, "not json", "[1]", '{"max_position_embeddings": "x"}'])
def test_ir_without_a_window_gets_the_smallest(tmp_path: Path, config: str | None) -> None:
    """A missing or odd config.json is no error: the window is then the smallest usual one."""
    folder = write_folder(tmp_path / "m")
    (folder / "config.json").unlink()
    if config is not None:
        (folder / "config.json").write_text(config, encoding="utf-8")
    assert read_ir_shape(folder).context_tokens == UNKNOWN_CONTEXT_TOKENS


def test_gguf_header_behind_a_vocabulary(tmp_path: Path) -> None:
    """Arrays are passed over, and heads and head size follow from the header."""
    assert read_gguf_shape(write_gguf(tmp_path / "m.gguf", LLAMA)) == Shape(8192, 30, 3, 64, 2 * 30 * 3 * 64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 something else",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 50),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 77),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 62),
    ],
)
def test_broken_gguf_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    """A cut, foreign or hostile file is an error that names it, and costs neither time nor memory."""
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(SetupError, match=r"m\.gguf is not a readable GGUF file") as caught:
        read_gguf_shape(path)
    assert "\n" not in str(caught.value)
