"""Find a model by name or path and hold its files against its manifest before anything loads it; getting one here is `agents.models.pull`."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agents.models.catalog import CATALOG
from agents.models.manifest import MANIFEST_FILE, REQUIRED_FILES, VERSION_DIGITS, WEIGHTS, FileCheck, Kind, Manifest, check_files, read_manifest
from agents.models.shapes import KV_VALUE_BYTES, Shape, read_gguf_shape, read_ir_shape
from schemas.errors import SetupError
from streams.home import answerby_home

HUB_PREFIX = "hf:"

_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16
"""A file that was never hashed is told apart by 4 MiB spread over it: a start must not read gigabytes, and every quantisation changes all of them."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
"""What a model's folder may be called: never a path, never hidden."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that is here and whole. `path` is what the engine loads: an OpenVINO folder ("ir") or a GGUF file ("gguf").

    `kv_bytes_per_token` is for a cache in 16 bits and 0 where the files do not tell; `manifest` is None for a model that was never pulled.
    """

    name: str
    version: str
    path: Path
    kind: Kind
    weights_bytes: int
    kv_bytes_per_token: int
    context_tokens: int
    manifest: Manifest | None


def models_folder() -> Path:
    """Where pulled models live: `models` in `$ANSWERBY_HOME`."""
    return answerby_home() / "models"


def resolve_model(path_or_name: str) -> ResolvedModel:
    """Find the model that a configuration names: a pulled one by name (or by the `hf:` it came from), else a folder or a GGUF file by path.

    Sizes of all files are checked, which takes microseconds; content is checked by `answerby models inspect`.

    Raises:
        SetupError: it is not here or broken; the text says which command mends it.
    """
    name = _name_of(path_or_name)
    if name is not None and (models_folder() / name).is_dir():
        return _resolve_pulled(name)
    path = Path(path_or_name).expanduser()
    if not path_or_name.startswith(HUB_PREFIX) and path.exists():
        return _resolve_path(path.absolute())
    raise SetupError(_not_here(path_or_name))


def load_manifest(name: str) -> Manifest:
    """Read the manifest of a pulled model.

    Raises:
        SetupError: there is none, or it cannot be read.
    """
    try:
        return read_manifest(models_folder() / name)
    except FileNotFoundError:
        problem = f"{MANIFEST_FILE} is gone"
    except (OSError, msgspec.DecodeError) as error:
        problem = f"{MANIFEST_FILE} cannot be read: {error}"
    msg = f"model {name!r} is broken ({problem}): run `answerby models pull --force {name}`"
    raise SetupError(msg)


def first_problem(checks: list[FileCheck]) -> str | None:
    """The first file that is not as it was, in words."""
    return next((f"{check.name} {check.problem}" for check in checks if check.problem is not None), None)


def list_names() -> list[str]:
    """Names of all pulled models, broken ones too, in order."""
    folder = models_folder()
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and _NAME.fullmatch(entry.name)) if folder.is_dir() else []


def list_language_models() -> list[str]:
    """Names of the pulled models that can be asked something; an encoder cannot, a broken one may be either."""
    return [name for name in list_names() if not _is_encoder(models_folder() / name)]


def _is_encoder(folder: Path) -> bool:
    try:
        return read_manifest(folder).kind == "encoder"
    except (OSError, msgspec.DecodeError):
        return False


def pull_argument(manifest: Manifest) -> str:
    """What to give to `answerby models pull` to have this model again."""
    scheme, _, rest = manifest.source.partition(":")
    return {"hf": manifest.source, "file": rest}.get(scheme, manifest.name)


def loadable_path(name: str, manifest: Manifest) -> Path:
    """What an engine loads for a pulled model."""
    return models_folder() / name if manifest.path is None else Path(manifest.path)


def safe_name(text: str) -> str:
    """A model's folder name made of any text: other characters become dashes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip(".")[:100] or "model"


def _name_of(path_or_name: str) -> str | None:
    if path_or_name.startswith(HUB_PREFIX):
        return safe_name(path_or_name.removeprefix(HUB_PREFIX).partition("@")[0].rpartition("/")[2])
    return path_or_name if _NAME.fullmatch(path_or_name) else None


def _resolve_pulled(name: str) -> ResolvedModel:
    manifest = load_manifest(name)
    if manifest.kind == "encoder":
        msg = f"model {name!r} is an encoder and answers nothing: name it in semantic_cache.encoder, and a language model in models[].path"
        raise SetupError(msg)
    problem = first_problem(check_files(models_folder() / name, manifest, hashes=False))
    if problem is not None:
        msg = f"model {name!r} is broken ({problem}): run `answerby models pull --force {pull_argument(manifest)}`"
        raise SetupError(msg)
    return ResolvedModel(
        name=name,
        version=manifest.version,
        path=loadable_path(name, manifest),
        kind=manifest.kind,
        weights_bytes=manifest.weights_bytes,
        kv_bytes_per_token=manifest.kv_bytes_per_token,
        context_tokens=manifest.context_tokens,
        manifest=manifest,
    )


def _resolve_path(path: Path) -> ResolvedModel:
    try:
        check_loadable(path)
        weights = path / WEIGHTS if path.is_dir() else path
        shape = read_path_shape(path)
        version, size = _sample_version(weights), weights.stat().st_size
    except OSError as error:
        msg = f"model {str(path)!r} cannot be read ({error.strerror}): mend it, or name another in models[].path"
        raise SetupError(msg) from error
    return ResolvedModel(
        name=safe_name(path.name if path.is_dir() else path.stem),
        version=version,
        path=path,
        kind="ir" if path.is_dir() else "gguf",
        weights_bytes=size,
        kv_bytes_per_token=shape.kv_values_per_token * KV_VALUE_BYTES,
        context_tokens=shape.context_tokens,
        manifest=None,
    )


def check_loadable(path: Path) -> None:
    """Refuse a folder or file that is no model.

    Raises:
        SetupError: a file is missing, or the kind is unknown.
    """
    if path.is_dir():
        missing = next((file for file in REQUIRED_FILES if not (path / file).is_file()), None)
        if missing is not None:
            msg = f"model {str(path)!r} has no {missing}: give a folder as exported for OpenVINO GenAI, tokenizer included"
            raise SetupError(msg)
    elif path.suffix != ".gguf":
        msg = f"model {str(path)!r} is neither an OpenVINO folder nor a .gguf file: give one of these"
        raise SetupError(msg)


def read_path_shape(path: Path) -> Shape:
    """Shape of a folder or GGUF file."""
    return read_ir_shape(path) if path.is_dir() else read_gguf_shape(path)


def _sample_version(weights: Path) -> str:
    """A version that is the same on every machine with the same file, from its size and samples of its content."""
    size = weights.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with weights.open("rb") as stream:
        for index in range(_SAMPLES):
            stream.seek(max(0, size - _SAMPLE_BYTES) * index // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:VERSION_DIGITS]


def _not_here(path_or_name: str) -> str:
    if path_or_name in CATALOG or path_or_name.startswith(HUB_PREFIX):
        return f"model {path_or_name!r} is not here: run `answerby models pull {path_or_name}`"
    if "/" in path_or_name or path_or_name.endswith(".gguf"):
        return f"model {path_or_name!r} is not here: no such folder or file"
    known = ", ".join(sorted({*CATALOG, *list_names()}))
    return f"model {path_or_name!r} is not here: run `answerby models pull hf:ORG/NAME` for one of the Hugging Face hub, or use one of: {known}"
