"""`answerby.json`: what a pulled model is and which bytes belong to it, written when it is made and checked at every start; finding one is `registry`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agents.models.shapes import KV_VALUE_BYTES, Shape

MANIFEST_FILE = "answerby.json"

VERSION_DIGITS = 12
"""Of the SHA-256 of the weights: 48 bits tell every model apart that one team will ever see, and fit a metric's label."""

Kind = Literal["ir", "gguf", "encoder"]
"""`encoder`: for the semantic cache, not for answers."""

WEIGHTS = "openvino_model.bin"
REQUIRED_FILES = ("openvino_model.xml", WEIGHTS, "openvino_tokenizer.xml", "openvino_tokenizer.bin", "openvino_detokenizer.xml", "openvino_detokenizer.bin")
"""What an OpenVINO folder needs to be asked anything; the rest (configuration, chat template) may be inside these."""

_Count = Annotated[int, Meta(ge=0)]


class FileEntry(msgspec.Struct, frozen=True):
    """One file as it was when the model was made."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size: _Count


class Manifest(msgspec.Struct, frozen=True):
    """What `answerby.json` says. `path` is set for a model that is registered where it lies; without it the files lie beside the manifest."""

    schema: Literal[1]
    name: str
    version: str
    kind: Kind
    source: str
    license: str
    context_tokens: _Count
    layers: _Count
    kv_heads: _Count
    head_size: _Count
    kv_bytes_per_token: _Count
    weights_bytes: _Count
    files: dict[str, FileEntry]
    path: str | None = None
    made_with: str = ""


class FileCheck(msgspec.Struct, frozen=True):
    """One file held against the manifest; `problem` is None when it is as it was."""

    name: str
    size: int
    problem: str | None


def build_manifest(folder: Path, files: list[str], *, name: str, kind: Kind, weights: str, source: str, license_id: str, shape: Shape) -> Manifest:
    """Hash `files` of `folder` and say what they are; the version is that of the weights."""
    entries = {file: _read_entry(folder / file) for file in sorted(files)}
    return Manifest(
        schema=1,
        name=name,
        version=entries[weights].sha256[:VERSION_DIGITS],
        kind=kind,
        source=source,
        license=license_id,
        context_tokens=shape.context_tokens,
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_size=shape.head_size,
        kv_bytes_per_token=shape.kv_values_per_token * KV_VALUE_BYTES,
        weights_bytes=entries[weights].size,
        files=entries,
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it last of all files, so that a folder that has one is whole."""
    (folder / MANIFEST_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """Read `folder`'s manifest.

    Raises:
        OSError: it is not there or cannot be read.
        msgspec.DecodeError, msgspec.ValidationError: it is not one of ours.
    """
    return msgspec.json.decode((folder / MANIFEST_FILE).read_bytes(), type=Manifest)


def check_files(folder: Path, manifest: Manifest, *, hashes: bool) -> list[FileCheck]:
    """Hold every file against the manifest: its size, and with `hashes` its content too (a second for each few hundred MB)."""
    base = base_folder(folder, manifest)
    return [_check_file(base / name, name, entry, hashes=hashes) for name, entry in manifest.files.items()]


def base_folder(folder: Path, manifest: Manifest) -> Path:
    """The folder that the manifest's file names are relative to."""
    if manifest.path is None:
        return folder
    return Path(manifest.path) if manifest.kind != "gguf" else Path(manifest.path).parent


def hash_file(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_entry(path: Path) -> FileEntry:
    return FileEntry(sha256=hash_file(path), size=path.stat().st_size)


def _check_file(path: Path, name: str, entry: FileEntry, *, hashes: bool) -> FileCheck:
    try:
        size = path.stat().st_size
        if size != entry.size:
            return FileCheck(name, size, f"has {size} bytes, expected {entry.size}")
        if hashes and (found := hash_file(path)) != entry.sha256:
            return FileCheck(name, size, f"has SHA-256 {found[:VERSION_DIGITS]}…, expected {entry.sha256[:VERSION_DIGITS]}…")
    except OSError as error:
        return FileCheck(name, 0, "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})")
    return FileCheck(name, size, None)
