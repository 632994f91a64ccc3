"""Reads the few figures that sizing an engine needs from a model's files: context length and KV cache bytes; the files come from `agents.models`."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from schemas.errors import SetupError

DEFAULT_CONTEXT = 2048
"""For a model whose files do not say: what the smallest common models have, so a prompt is refused rather than read past the end."""

KV_ELEMENT_BYTES = 2
"""The cache is kept in 16 bits: 8 bits are smaller but slower on CPUs."""

_GGUF_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_GGUF_STRING, _GGUF_ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`context_tokens`: prompt and answer together. `kv_bytes_per_token`: of all layers."""

    context_tokens: int
    kv_bytes_per_token: int


def read_facts(path: Path) -> ModelFacts:
    """The figures of an OpenVINO folder or a GGUF file.

    Raises:
        SetupError: the files are missing or say nothing usable.
    """
    if path.is_dir():
        return _folder_facts(path)
    if path.suffix == ".gguf" and path.is_file():
        return _gguf_facts(path)
    text = f"no model at {path}; run `answerby models list` to see what is there, `answerby models pull` to get one"
    raise SetupError(text)


def _folder_facts(path: Path) -> ModelFacts:
    graph = path / "openvino_model.xml"
    if not graph.is_file():
        text = f"{path} has no openvino_model.xml; run `answerby models pull` again or name another folder"
        raise SetupError(text)
    ours, config = _json(path / "answerby.json"), _json(path / "config.json")
    context = ours.get("context_tokens") or config.get("max_position_embeddings") or DEFAULT_CONTEXT
    shapes = re.findall(r'variable_shape="([^"]*)"', graph.read_text(errors="replace"))
    sizes = [_fixed_size(shape) for shape in shapes]
    per_token = sum(sizes) * KV_ELEMENT_BYTES
    if not per_token:
        text = f"{graph} keeps no KV cache between steps; convert the model again as a stateful one"
        raise SetupError(text)
    return ModelFacts(int(context), per_token)


def _fixed_size(shape: str) -> int:
    size = 1
    for dimension in shape.split(","):
        if dimension.strip().isdigit():
            size *= int(dimension)
    return size


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _gguf_facts(path: Path) -> ModelFacts:
    try:
        with path.open("rb") as file:
            found = dict(_gguf_entries(file))
        kind = found["general.architecture"]
        heads = int(found[f"{kind}.attention.head_count"])
        kv_heads = int(found.get(f"{kind}.attention.head_count_kv", heads))
        head = int(found.get(f"{kind}.attention.key_length", int(found[f"{kind}.embedding_length"]) // heads))
        layers, context = int(found[f"{kind}.block_count"]), int(found[f"{kind}.context_length"])
    except (OSError, KeyError, ValueError, struct.error, ZeroDivisionError):
        text = f"{path} is not a whole GGUF file; get it again"
        raise SetupError(text) from None
    return ModelFacts(context, layers * 2 * kv_heads * head * KV_ELEMENT_BYTES)


def _gguf_entries(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The metadata up to the vocabulary, which comes last and is long; layout as in ggml's gguf.md."""
    magic, _, _, count = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF":
        text = "no GGUF"
        raise ValueError(text)
    for _ in range(count):
        key = _gguf_string(file)
        if key.startswith("tokenizer."):
            return
        yield key, _gguf_value(file, struct.unpack("<I", file.read(4))[0])


def _gguf_string(file: BinaryIO) -> str:
    size = struct.unpack("<Q", file.read(8))[0]
    if size > 1 << 20:
        text = "a string of absurd length"
        raise ValueError(text)
    return file.read(size).decode(errors="replace")


def _gguf_value(file: BinaryIO, kind: int) -> Any:
    if kind == _GGUF_STRING:
        return _gguf_string(file)
    if kind == _GGUF_ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        return [_gguf_value(file, inner) for _ in range(count)]
    layout = _GGUF_NUMBERS[kind]
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
