"""Rules for tests, written as files write them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from agents.rules.compiled import CompiledRule, RuleProblem, compile_rule
from agents.rules.files import load_rules
from agents.rules.index import RuleSet
from schemas.rules import Rule
from schemas.settings_ladder import Rules


def rule(text: str) -> Rule:
    """One rule from the inside of its `[[rules]]` entry; name and answer have defaults."""
    fields: dict[str, Any] = {"name": "one", "match": {}, "answer": {"en": "Said."}, **tomllib.loads(text)}
    return msgspec.convert(fields, Rule)


def ruleset(*texts: str, text_chars: int = 1000) -> RuleSet:
    """A set of rules that are right, named `r0`, `r1` … unless they say otherwise."""
    compiled = [compile_rule(rule(text if "name" in tomllib.loads(text) else f'name = "r{number}"\n{text}')) for number, text in enumerate(texts)]
    assert all(isinstance(one, CompiledRule) for one in compiled), compiled
    return RuleSet([one for one in compiled if isinstance(one, CompiledRule)], text_chars=text_chars)


def problems(text: str) -> dict[str, str]:
    """What is wrong with a rule, by key."""
    found = compile_rule(rule(text))
    assert isinstance(found, list), "the rule is right"
    assert all(isinstance(problem, RuleProblem) and problem.right for problem in found)
    return {".".join(map(str, problem.key)): problem.wrong for problem in found}


def load(folder: Path, text: str) -> RuleSet:
    """A rule file, loaded."""
    file = folder / "rules.toml"
    file.write_text(text, encoding="utf-8")
    return load_rules(Rules(files=(str(file),)))
