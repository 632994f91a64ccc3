"""What a worker would refuse of its settings, asked before anything starts; `config check`, `worker`, `up` and `demo` share it, keys are `schemas.settings`."""

from __future__ import annotations

import os
from pathlib import Path

from schemas.errors import ConfigError, SetupError
from schemas.settings import Model, Settings, find_unused


def refuse_wrong_parts(settings: Settings, *, own_broker: bool = False) -> None:
    """What passes here, a worker on this machine starts with, once the broker answers and `find_missing` names nothing.

    Args:
        settings: what the worker is to run with.
        own_broker: the command brings its broker, so `[kafka]`'s addresses and files are not used.

    Raises:
        ConfigError: a key is wrong; the text says which and what would be right.
    """
    from agents.cache.shared import open_shared_store
    from agents.rules.rung import build_rules_rung
    from agents.runtime.cpus import available_cores, place
    from agents.scenarios import plan_scenarios
    from streams.security import client_options

    plan_scenarios(settings, lambda _names: {})
    build_rules_rung(settings.rules)
    open_shared_store(settings.cache)
    place(settings.models, available_cores(), settings.worker.cpus)
    if not own_broker:
        client_options(settings.kafka)
    _refuse_models(settings)
    _refuse_encoder(settings)
    _refuse_data_dir(settings)


def find_missing(settings: Settings) -> tuple[str, ...]:
    """A line for each model or encoder that a command can bring here and that is not here yet: no mistake, and a worker does not start without it."""
    searched = ((key, _find_model(model.path)) for key, model in _real_models(settings) if _is_awaited(model.path))
    missing = [_at(key, found) for key, found in searched if isinstance(found, SetupError)]
    if _is_encoder_awaited(settings) and isinstance(found := _find_encoder(settings.semantic_cache.encoder), SetupError):
        missing.append(_at("semantic_cache.encoder", found))
    return tuple(str(error) for error in missing)


def tell_unused(settings: Settings) -> None:
    """Log what is switched on and does nothing, as `config check` would print it."""
    import structlog

    for line in find_unused(settings):
        structlog.get_logger(__name__).warning("setting without effect", problem=line)


def _refuse_models(settings: Settings) -> None:
    for key, model in _real_models(settings):
        if not _is_awaited(model.path) and isinstance(found := _find_model(model.path), SetupError):
            raise _at(key, found)


def _refuse_encoder(settings: Settings) -> None:
    from agents.semantic.encoder import NGRAMS

    wanted = settings.semantic_cache.encoder
    if not _uses_encoder(settings) or wanted == NGRAMS or _is_encoder_awaited(settings):
        return
    if isinstance(found := _find_encoder(wanted), SetupError):
        raise _at("semantic_cache.encoder", found)


def _real_models(settings: Settings) -> list[tuple[str, Model]]:
    return [(f"models[{index}].path", model) for index, model in enumerate(settings.models) if model.engine != "scripted"]


def _find_model(path: str) -> object:
    from agents.models.registry import resolve_model

    try:
        return resolve_model(path)
    except SetupError as error:
        return error


def _find_encoder(wanted: str) -> object:
    from agents.semantic.openvino_encoder import find_encoder

    try:
        return find_encoder(wanted)
    except SetupError as error:
        return error


def _is_awaited(model: str) -> bool:
    """Whether nothing is there under a name that a pull may still bring: of the catalog, of a hub, or one that was given to a pull; a path is none."""
    from agents.models.registry import HUB_PREFIX, list_names, safe_name

    if model.startswith(HUB_PREFIX):
        return safe_name(model.removeprefix(HUB_PREFIX).partition("@")[0].rpartition("/")[2]) not in list_names()  # as a pull names the folder
    return "/" not in model and not model.endswith(".gguf") and model not in list_names() and not Path(model).exists()


def _is_encoder_awaited(settings: Settings) -> bool:
    from agents.models.catalog import ENCODERS
    from agents.models.registry import list_names

    wanted = settings.semantic_cache.encoder
    return _uses_encoder(settings) and wanted in ENCODERS and wanted not in list_names()


def _uses_encoder(settings: Settings) -> bool:
    return any(scenario.semantic_cache.threshold is not None for scenario in settings.scenarios.values())


def _refuse_data_dir(settings: Settings) -> None:
    """The folder itself is made by the worker: here only whether it can be."""
    if not settings.worker.data_dir:
        return
    folder = Path(settings.worker.data_dir).absolute()
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        raise ConfigError("worker.data_dir", f"{nearest} is a file", "name a folder, or none that is there yet")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError("worker.data_dir", f"{folder} cannot be made in {nearest}", "name a folder that this user may write")


def _at(key: str, error: SetupError) -> ConfigError:
    """The finder's own words, under the key that sent it looking."""
    wrong, _, right = str(error).partition(": ")
    return ConfigError(key, wrong, right)
