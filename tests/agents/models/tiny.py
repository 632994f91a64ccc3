"""Tiny files in the shape of models, for tests that move and check files and never load them."""

from __future__ import annotations

import struct
from pathlib import Path

MODEL_XML = b"""<net><layers>
<data variable_id="past_key_values.0.keypresent.0.key" variable_type="f32" variable_shape="?,3,?,64" />
<data variable_id="past_key_values.0.valuepresent.0.value" variable_type="f32" variable_shape="?,3,?,64" />
<data variable_id="past_key_values.0.keypresent.0.key" variable_type="f32" variable_shape="?,3,?,64" />
</layers></net>"""

FILES = {
    "openvino_model.xml": MODEL_XML,
    "openvino_model.bin": bytes(range(256)) * 4000,
    "openvino_tokenizer.xml": b"<net/>",
    "openvino_tokenizer.bin": b"tok",
    "openvino_detokenizer.xml": b"<net/>",
    "openvino_detokenizer.bin": b"detok",
    "config.json": b'{"max_position_embeddings": 4096}',
    "chat_template.jinja": b"{{ messages }}",
}


def write_folder(folder: Path) -> Path:
    """An OpenVINO folder by its names; its weights are a megabyte of nothing."""
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return folder


def write_gguf(path: Path, values: dict[str, int | str], items: int = 3) -> Path:
    """A GGUF header with `values` behind a vocabulary of `items` entries, and no tensors."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values) + 1)
    out += _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, items) + b"".join(_text(f"t{index}") for index in range(items))
    for key, value in values.items():
        out += _text(key) + (struct.pack("<I", 8) + _text(value) if isinstance(value, str) else struct.pack("<II", 4, value))
    path.write_bytes(out)
    return path


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
