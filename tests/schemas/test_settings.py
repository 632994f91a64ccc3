"""Settings: every default works, every contradiction is named by the key that mends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas.errors import ConfigError
from schemas.events import InteractionEvent
from schemas.settings import Model, Settings, check_settings, find_unused, parse_settings, text_for_locale
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
    "a misspelt rung that leaves the default model unused": ({"ladder": {"rungs": ["mian", "default"]}}, "ladder.rungs[0]"),
    "a misspelt rung that leaves a model unused": ({"models": [MAIN], "ladder": {"rungs": ["mian", "default"]}}, "ladder.rungs[0]"),
    "a model that is written and that no rung uses": ({"models": [MAIN], "ladder": {"rungs": ["rules", "default"]}}, "models[0].name"),
    "a rung of an oddly named scenario": ({"scenarios": {"a b": {"ladder": {"rungs": ["oracle"]}}}}, 'scenarios."a b".ladder.rungs[0]'),
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


@pytest.mark.parametrize("name", ["客服", "a b", "a.b", "x" * 128, "客" * 128])
def test_a_scenario_may_be_called_what_events_may_carry(name: str) -> None:
    """Every name that an event may carry can be configured, and decodes in an event."""
    assert parse_settings({"scenarios": {name: {"priority": 1}}}).scenarios[name].priority == 1
    assert msgspec.convert({"event_id": "e", "session_id": "s", "scenario": name}, InteractionEvent).scenario == name


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"scenarios": {"ok": {}, "": {}}}, "scenarios.\"\": the name '' is wrong; must be text of 1 to 128 characters"),
        ({"scenarios": {"a\nb": {"priority": 77}}}, 'scenarios."a\\nb".priority: 77 is wrong; must be a whole number from 0 to 9'),
        ({"scenarios": {"客服": {"priority": 77}}}, "scenarios.客服.priority: 77 is wrong; must be a whole number from 0 to 9"),
        (
            {"scenarios": {"z": {}, "a": {"state_schema": {"types": {"k": "string", "g": "int"}}}}},
            "scenarios.a.state_schema.types.g: 'int' is wrong; one of: array, boolean, integer, number, object, string",
        ),
        (
            {"facts": {"slots": [{"name": "n", "patterns": {"en": ["x"], "zh": "y"}}]}},
            "facts.slots[0].patterns.zh: 'y' is wrong; must be a list, each item text",
        ),
    ],
)
def test_a_wrong_entry_of_a_map_is_named(tree: dict[str, Any], message: str) -> None:
    """The message has the entry's name and its value, whatever kind of values the map has."""
    with pytest.raises(ConfigError) as caught:
        parse_settings(tree)
    assert str(caught.value).startswith(message)


def test_a_ladder_without_models_needs_none() -> None:
    """Nobody wrote the default model: when no ladder names it there is none; a scenario that names it brings it back."""
    rules_alone = {"ladder": {"rungs": ["rules", "default"]}}
    assert parse_settings(rules_alone).models == ()
    assert parse_settings({**rules_alone, "scenarios": {"chat": {"ladder": {"rungs": ["main", "default"]}}}}).models == (Model(),)


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"cache": {"ttl_s": 60}}, "cache.ttl_s: "),
        ({"scenarios": {"faq": {"cache": {"ttl_s": 60}}}}, "scenarios.faq.cache.ttl_s: "),
        ({"scenarios": {"faq": {"semantic_cache": {"threshold": 0.9}}}}, "scenarios.faq.semantic_cache.threshold: "),
        ({"rules": {"files": ["rules.toml"]}}, "rules: "),
    ],
)
def test_what_no_ladder_uses_is_told(tree: dict[str, Any], key: str) -> None:
    """A cache or rules that are switched on and stand in no ladder are told by their key; in the default ladder they are of use."""
    unused = find_unused(parse_settings({**tree, "ladder": {"rungs": ["main", "default"]}}))
    assert [line.startswith(key) for line in unused] == [True]
    assert find_unused(parse_settings(tree)) == ()


def test_a_session_must_hold_the_state_that_is_allowed() -> None:
    """Limits that contradict each other are refused at the start, not found out by a session that loses its state."""
    with pytest.raises(ConfigError, match=r"limits\.session_bytes"):
        parse_settings({"limits": {"session_bytes": 65_536}})
    assert parse_settings({"limits": {"session_bytes": 98_304}}).limits.session_bytes == 98_304
