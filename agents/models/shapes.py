"""What a model's files say about its size in use (context window, KV cache of a token), read without loading it; loading is `agents.runtime.openvino`."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from schemas.errors import SetupError

UNKNOWN_CONTEXT_TOKENS = 2048
"""For models that do not tell: the smallest window of those in use; a longer prompt would be answered with noise, a shorter limit only cuts old turns."""

KV_VALUE_BYTES = 2
"""A value of the KV cache is kept in 16 bits; a cache in 8 bits holds up to twice the tokens, one in 32 bits half."""

_VARIABLE = re.compile(rb'variable_id="(past_key_values[^"]*)"[^>]*?variable_shape="([^"]*)"')

_MAX_GGUF_KEYS, _MAX_GGUF_TEXT, _MAX_GGUF_ITEMS = 4096, 1 << 24, 1 << 24
"""A file that is no GGUF must not make us read or reserve gigabytes: real ones have below 100 keys and 300,000 tokens."""

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes in tokens and values; 0 where the files do not tell."""

    context_tokens: int
    layers: int
    kv_heads: int
    head_size: int
    kv_values_per_token: int


def read_ir_shape(folder: Path) -> Shape:
    """Shape of an OpenVINO model: its cache variables from openvino_model.xml, its window from config.json when there is one."""
    variables = dict(_VARIABLE.findall((folder / "openvino_model.xml").read_bytes()))
    sizes = [size for text in variables.values() if (size := _cache_size(text)) is not None]
    heads, head_size = sizes[0] if sizes else (0, 0)
    return Shape(
        context_tokens=_read_context(folder / "config.json") or UNKNOWN_CONTEXT_TOKENS,
        layers=len(sizes) // 2,
        kv_heads=heads,
        head_size=head_size,
        kv_values_per_token=sum(h * s for h, s in sizes),
    )


def read_gguf_shape(path: Path) -> Shape:
    """Shape of a GGUF model, from its header.

    Raises:
        SetupError: the file is not GGUF or is cut short.
    """
    try:
        with path.open("rb") as stream:
            values = _read_gguf_values(stream)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        msg = f"{path} is not a readable GGUF file ({error}): fetch it again"
        raise SetupError(msg) from None
    architecture = values.get("general.architecture", "")

    def number(key: str) -> int:
        value = values.get(f"{architecture}.{key}", 0)
        return value if isinstance(value, int) else 0

    layers, heads = number("block_count"), number("attention.head_count")
    kv_heads = number("attention.head_count_kv") or heads
    head_size = number("attention.key_length") or (number("embedding_length") // heads if heads else 0)
    return Shape(number("context_length") or UNKNOWN_CONTEXT_TOKENS, layers, kv_heads, head_size, 2 * layers * kv_heads * head_size)


def _cache_size(text: bytes) -> tuple[int, int] | None:
    """Heads and head size from a shape such as `?,3,?,64`; None for caches of another make (they do not grow with the tokens)."""
    parts = text.split(b",")
    if len(parts) != 4 or not (parts[1].isdigit() and parts[3].isdigit()):  # noqa: PLR2004  batch, heads, tokens, head size
        return None
    return int(parts[1]), int(parts[3])


def _read_context(config: Path) -> int:
    try:
        tree = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return 0
    for place in (tree, tree.get("text_config")) if isinstance(tree, dict) else ():
        value = place.get("max_position_embeddings") if isinstance(place, dict) else None
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _read_gguf_values(stream: BinaryIO) -> dict[str, int | float | str | bool]:
    if stream.read(4) != b"GGUF":
        msg = "no GGUF mark at its start"
        raise ValueError(msg)
    _version, _tensors, keys = struct.unpack("<IQQ", stream.read(20))
    values: dict[str, int | float | str | bool] = {}
    for _ in range(_bounded(keys, _MAX_GGUF_KEYS)):
        key, kind = _read_text(stream), _read_number(stream, "<I")
        value = _read_value(stream, int(kind))
        if value is not None:
            values[key] = value
    return values


def _read_value(stream: BinaryIO, kind: int) -> int | float | str | bool | None:
    """A scalar or text; arrays (the vocabulary) are passed over."""
    if kind == _TEXT:
        return _read_text(stream)
    if kind != _ARRAY:
        return _read_number(stream, _scalar(kind))
    item = int(_read_number(stream, "<I"))
    count = _bounded(int(_read_number(stream, "<Q")), _MAX_GGUF_ITEMS)
    if item == _TEXT:
        for _ in range(count):
            stream.seek(_bounded(int(_read_number(stream, "<Q")), _MAX_GGUF_TEXT), 1)
    else:
        stream.seek(count * struct.calcsize(_scalar(item)), 1)
    return None


def _read_text(stream: BinaryIO) -> str:
    return stream.read(_bounded(int(_read_number(stream, "<Q")), _MAX_GGUF_TEXT)).decode("utf-8")


def _read_number(stream: BinaryIO, layout: str) -> int | float | bool:
    value: int | float | bool = struct.unpack(layout, stream.read(struct.calcsize(layout)))[0]
    return value


def _scalar(kind: int) -> str:
    if kind not in _SCALARS:
        msg = f"unknown type {kind} in its header"
        raise ValueError(msg)
    return _SCALARS[kind]


def _bounded(count: int, most: int) -> int:
    if count > most:
        msg = f"its header announces {count} items"
        raise ValueError(msg)
    return count
