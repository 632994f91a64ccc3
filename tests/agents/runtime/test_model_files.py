"""The figures that size an engine are found in whatever files a model brings."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from agents.runtime.model_files import DEFAULT_CONTEXT, ModelFacts, read_facts
from schemas.errors import SetupError

_LAYER = '<data variable_id="k" variable_type="f32" variable_shape="?,3,?,64" /><data variable_id="v" variable_type="f32" variable_shape="?,3,?,64" />'


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _gguf(path: Path, **numbers: int) -> Path:
    entries = [
        _string("general.architecture") + struct.pack("<I", 8) + _string("llama"),
        _string("a.list") + struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 1, 2),
    ]
    entries += [_string("llama." + key.replace("__", ".")) + struct.pack("<II", 4, value) for key, value in numbers.items()]
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(entries)) + b"".join(entries))
    return path


def test_folder_with_our_manifest(tmp_path: Path) -> None:
    """Context from answerby.json, cache size from the graph: 2 x 3 heads x 64 x 2 bytes a layer."""
    (tmp_path / "openvino_model.xml").write_text(_LAYER * 30)
    (tmp_path / "answerby.json").write_text('{"context_tokens": 8192}')
    assert read_facts(tmp_path) == ModelFacts(8192, 30 * 2 * 3 * 64 * 2)


def test_foreign_folder(tmp_path: Path) -> None:
    """Context from config.json, else a cautious default."""
    (tmp_path / "openvino_model.xml").write_text(_LAYER)
    assert read_facts(tmp_path).context_tokens == DEFAULT_CONTEXT
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    assert read_facts(tmp_path).context_tokens == 4096


def test_gguf_file(tmp_path: Path) -> None:
    """The same figures from GGUF metadata."""
    path = _gguf(tmp_path / "m.gguf", block_count=30, attention__head_count=9, attention__head_count_kv=3, embedding_length=576, context_length=8192)
    assert read_facts(path) == ModelFacts(8192, 30 * 2 * 3 * 64 * 2)


@pytest.mark.parametrize("size", [0, 10, 60, 150])
def test_truncated_gguf_is_one_line(tmp_path: Path, size: int) -> None:
    """A file that is not whole says so, wherever it ends."""
    path = _gguf(tmp_path / "m.gguf", block_count=30, attention__head_count=9, context_length=8192)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(SetupError, match="not a whole GGUF file"):
        read_facts(path)


def test_folder_without_a_graph_or_a_cache(tmp_path: Path) -> None:
    """Each says what to do."""
    with pytest.raises(SetupError, match=r"no openvino_model\.xml; run"):
        read_facts(tmp_path)
    (tmp_path / "openvino_model.xml").write_text("<net/>")
    with pytest.raises(SetupError, match="stateful"):
        read_facts(tmp_path)
    with pytest.raises(SetupError, match="answerby models"):
        read_facts(tmp_path / "nothing")
