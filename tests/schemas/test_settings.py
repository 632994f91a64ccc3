"""Settings: every default works, every contradiction is named by the key that mends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas.errors import ConfigError
from schemas.settings import Settings, check_settings, parse_settings, text_for_locale
from schemas.settings_ladder import BUILT_IN_RUNGS

MAIN = {"name": "main"}

CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a default budget below the least": ({"deadline": {"default_ms": 10, "min_ms": 20}}, "deadline.default_ms"),
    "a default budget above the most": ({"deadline": {"default_ms": 5000, "max_ms": 4000}}, "deadline.default_ms"),
    "a reserve that leaves nothing": ({"deadline": {"reserve_ms": 60_000}}, "deadline.reserve_ms"),
    "a reserve below zero": ({"deadline": {"reserve_ms": -1}}, "deadline.reserve_ms"),
    "two models of one name": ({"models": [MAIN, MAIN]}, "models[1].name"),
    "a model named as a rung of another kind": ({"models": [{"name": "cache"}]}, "models[0].name"),
    "a model that no rung uses": ({"models": [MAIN, {"name": "spare"}]}, "models[1].name"),
    "a rung that nothing answers": ({"ladder": {"rungs": ["main", "oracle", "default"]}}, "ladder.rungs[1]"),
    "a rung named twice": ({"ladder": {"rungs": ["main", "default", "main"]}}, "ladder.rungs[2]"),
    "reviews among the events": ({"feedback": {"topic": "interactions"}}, "feedback.topic"),
    "default texts without English": ({"ladder": {"default_text": {"zh": "稍后再试。"}}}, "ladder.default_text"),
    "disclosures without English": ({"policy": {"disclosure": {}}}, "policy.disclosure"),
}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown section": ({"kafak": {}}, "kafak"),
    "an unknown key": ({"deadline": {"defualt_ms": 5}}, "deadline.defualt_ms"),
    "an unknown key of a model": ({"models": [{"name": "main", "thread": 1}]}, "models[0].thread"),
    "an unknown key deep inside": ({"kafka": {"security": {"user": "x"}}}, "kafka.security.user"),
    "a word for a number": ({"deadline": {"min_ms": "soon"}}, "deadline.min_ms"),
    "a number for a word": ({"app": {"id": 7}}, "app.id"),
    "a bool for a number": ({"kafka": {"partitions": True}}, "kafka.partitions"),
    "a number out of range": ({"kafka": {"partitions": 0}}, "kafka.partitions"),
    "a port out of range": ({"worker": {"metrics_port": 65_536}}, "worker.metrics_port"),
    "a store that does not exist": ({"worker": {"store": "redis"}}, "worker.store"),
    "an engine that does not exist": ({"models": [{"engine": "gpu"}]}, "models[0].engine"),
    "a name that no topic may have": ({"kafka": {"topic_prefix": "a b"}}, "kafka.topic_prefix"),
    "a core below zero": ({"models": [{"cpus": [0, -1]}]}, "models[0].cpus"),
    "no rungs": ({"ladder": {"rungs": []}}, "ladder.rungs"),
    "a list for a section": ({"limits": []}, "limits"),
}


def test_the_defaults_work_together() -> None:
    """An empty file is a working configuration, equal to the tree's own defaults."""
    assert parse_settings({}) == Settings()


def test_defaults_written_out_are_the_defaults() -> None:
    """Writing every default into a file changes nothing."""
    assert parse_settings(msgspec.to_builtins(Settings())) == Settings()


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_names_the_key_to_change(name: str) -> None:
    """Values that are allowed alone and cannot work together are refused, exit code 2, in one line that starts with the key."""
    tree, key = CONTRADICTIONS[name]
    with pytest.raises(ConfigError) as caught:
        parse_settings(tree)
    assert caught.value.key == key
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"{key}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_names_its_key(name: str) -> None:
    """An unknown key or a value of the wrong kind is refused by the full name of its key, in one line."""
    tree, key = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        parse_settings(tree)
    assert caught.value.key.startswith(key)
    assert "\n" not in str(caught.value)


def test_a_fallback_model_is_a_rung_by_its_name() -> None:
    """A second model is used as soon as a rung has its name; built-in rungs without configuration are allowed."""
    settings = parse_settings({"models": [{"name": "main"}, {"name": "fallback", "engine": "scripted"}]})
    assert [model.name for model in settings.models] == ["main", "fallback"]
    assert settings.ladder.rungs == BUILT_IN_RUNGS
    own = parse_settings({"models": [{"name": "small"}], "ladder": {"rungs": ["small", "default"]}})
    check_settings(own)


def test_no_model_at_all_is_allowed() -> None:
    """A worker may answer from its other rungs alone."""
    assert parse_settings({"models": []}).models == ()


@pytest.mark.parametrize(
    ("locale", "text"),
    [("zh", "你好"), ("zh-CN", "你好"), ("zh_Hant_TW", "你好"), ("ZH-cn", "你好"), ("pt-BR", "olá"), ("pt", "hello"), ("de", "hello"), ("", "hello")],
)
def test_a_locale_finds_the_nearest_text(locale: str, text: str) -> None:
    """The exact locale, else its language, else English."""
    assert text_for_locale({"en": "hello", "zh": "你好", "pt-BR": "olá"}, locale) == text


def test_the_wrong_scenario_is_the_one_named() -> None:
    """Of several scenarios, the message names the key of the one that is wrong."""
    with pytest.raises(ConfigError, match=r"scenarios\.b\.priority"):
        parse_settings({"scenarios": {"a": {"priority": 1}, "b": {"priority": 77}}})


def test_rules_are_an_array_or_a_table() -> None:
    """`[[rules]]` alone means what `[[rules.inline]]` means."""
    rule = {"name": "hours", "match": {"any": ["open"]}, "answer": {"en": "Nine to five."}}
    assert parse_settings({"rules": [rule]}) == parse_settings({"rules": {"inline": [rule]}})


def test_a_model_may_serve_one_scenario_alone() -> None:
    """A model that only a scenario's ladder names is used; one that nobody names is refused."""
    models = [MAIN, {"name": "small"}]
    assert parse_settings({"models": models, "scenarios": {"chat": {"ladder": {"rungs": ["small", "default"]}}}}).models[1].name == "small"
    with pytest.raises(ConfigError, match=r"models\[1\]\.name"):
        parse_settings({"models": models})
