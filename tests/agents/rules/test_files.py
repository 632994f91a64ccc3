"""Rule files: what is wrong is told with file, line, key, rule and what would be right."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agents.rules.files import ReadingStopped, load_rules, read_rules
from agents.rules.index import MAX_LOOSE_PATTERNS
from schemas.errors import ConfigError
from schemas.rules import Rule, RuleMatch
from schemas.settings_ladder import Rules
from tests.agents.rules.writing import load

HEAD = '[[rules]]\nname = "one"\nmatch.any = ["x"]\nanswer.en = "Said."\n\n'


def messages(folder: Path, text: str) -> list[str]:
    """Everything that is told of a file, without its folder."""
    (folder / "rules.toml").write_text(text, encoding="utf-8")
    read = read_rules(Rules(files=(str(folder / "rules.toml"),)))
    assert read.ruleset.count == 0
    return [str(problem).replace(f"{folder}/", "") for problem in read.problems]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rules]]\nname = 5\n", "rules.toml:2: rules[0].name: 5 is wrong; must be text matching ^[A-Za-z0-9._-]{1,100}\\Z"),
        (
            HEAD + '[[rules]]\nname = "b"\n[rules.match]\npatern = "x"\n',
            "rules.toml:9: rules[1].match.patern (rule b): unknown key; did you mean rules[1].match.pattern?",
        ),
        (HEAD + '[[rules]]\nname = "b"\nmatch.any = ["x"]\n', "rules.toml:6: rules[1].answer (rule b): is missing; must be a table, each value text"),
        (HEAD + HEAD, "rules.toml:7: rules[1].name: 'one' is there twice (before: rules.toml, line 2); give each rule its own name"),
        ("rules = 5\n", "rules.toml:1: rules: no rules; write [[rules]] entries"),
        ("", "rules.toml:1: rules: no rules; write [[rules]] entries"),
        ("\n[kafka]\n", "rules.toml:2: kafka: unknown key; a rule file holds [[rules]] alone; settings are given by -c"),
        ("[[rules]\n", "rules.toml:1: not TOML (Expected ']]' at the end of an array declaration); mend this line"),
        (
            HEAD.replace('"x"]', '"x",\n "*"]'),
            "rules.toml:4: rules[0].match.any[1] (rule one): is empty; write a word to look for",
        ),
        (
            HEAD.replace("Said.", "{nmae}"),
            "rules.toml:4: rules[0].answer.en (rule one): nothing is called {nmae} here; use one of: {locale}, {state.KEY}, {text}; or {{ for a brace",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    """One line an operator can act on."""
    assert messages(tmp_path, text) == [message]


def test_every_problem_is_told_in_order(tmp_path: Path) -> None:
    """Types and meanings, all rules, by line."""
    text = HEAD.replace('"x"', '""') + '[[rules]]\nname = "b"\npriority = 5000\n\n' + HEAD.replace("one", "c").replace("Said.", "{")
    assert [message.split(": ")[0] for message in messages(tmp_path, text)] == ["rules.toml:3", "rules.toml:8", "rules.toml:13"]


def test_first_problem_ends_a_start(tmp_path: Path) -> None:
    """A start with wrong rules is refused with exit code 2, and says how to see the rest."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, HEAD.replace('"x"', '""') + HEAD.replace("one", "b").replace("Said.", "}"))
    assert str(caught.value).startswith(f"{tmp_path}/rules.toml:3: rules[0].match.any[0] (rule one): is empty")
    assert str(caught.value).endswith("(and 1 more: `answerby rules check` lists them)")
    assert caught.value.exit_code == 2


def test_missing_file_and_folder_are_told(tmp_path: Path) -> None:
    """A file that cannot be read is named."""
    with pytest.raises(ConfigError, match=r"none\.toml: no such file; name one that exists, relative to the settings file"):
        load_rules(Rules(files=(str(tmp_path / "none.toml"),)))
    with pytest.raises(ConfigError, match="Is a directory"):
        load_rules(Rules(files=(str(tmp_path),)))


def test_inline_rules_come_first_and_have_their_key(tmp_path: Path) -> None:
    """Rules of the settings stand before those of files; what is wrong with one is told by its key and name."""
    (tmp_path / "a.toml").write_text(HEAD, encoding="utf-8")
    rule = Rule(name="inline", match=RuleMatch(any=("x",)), answer={"en": "I"})
    found = load_rules(Rules(files=(str(tmp_path / "a.toml"),), inline=(rule,))).match("x")
    assert found is not None
    assert found.rule == "inline"
    wrong = Rule(name="inline", match=RuleMatch(any=("",)), answer={"en": "I"})
    with pytest.raises(ConfigError, match=r"^rules\.inline\[0\]\.match\.any\[0\] \(rule inline\): is empty"):
        load_rules(Rules(inline=(wrong,)))


def test_too_many_rules_are_refused(tmp_path: Path) -> None:
    """`max_rules` bounds all files together."""
    names = tuple(str(tmp_path / name) for name in ("a.toml", "b.toml"))
    for name in names:
        Path(name).write_text(HEAD + HEAD.replace("one", "two"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a\.toml:6: rules\.max_rules: there are more than 1 rules; raise it, or write fewer$"):
        load_rules(Rules(files=names[:1], max_rules=1))
    with pytest.raises(ConfigError, match=r"b\.toml:6: rules\.max_rules: there are more than 3 rules"):
        load_rules(Rules(files=names, max_rules=3))
    inline = (Rule(name="a", match=RuleMatch(any=("x",)), answer={"en": "I"}), Rule(name="b", match=RuleMatch(any=("x",)), answer={"en": "I"}))
    with pytest.raises(ConfigError, match=r"^rules\.max_rules: there are more than 1 rules"):
        load_rules(Rules(inline=inline, max_rules=1))
    Path(names[0]).write_text("rules = [{ name = 5 }, { name = 5 }]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a\.toml: rules\.max_rules: there are more than 1 rules; raise it, or write fewer$"):
        load_rules(Rules(files=names[:1], max_rules=1))


@pytest.mark.parametrize("wrong", ['name = "{"\n', "name = '''\n"])
def test_file_of_too_many_rules_is_not_read(tmp_path: Path, wrong: str) -> None:
    """It is refused for their number before anything in them is looked at, so that a huge file costs nothing."""
    (tmp_path / "a.toml").write_text("[[rules]]\n" * 120_000 + wrong, encoding="utf-8")
    read = read_rules(Rules(files=(str(tmp_path / "a.toml"),)))
    assert [str(problem) for problem in read.problems] == [
        f"{tmp_path}/a.toml:20001: rules.max_rules: there are more than 20000 rules; raise it, or write fewer"
    ]


def test_reading_ends_when_it_is_to_stop(tmp_path: Path) -> None:
    """Who reads in a thread can end it between two rules."""
    (tmp_path / "a.toml").write_text(HEAD, encoding="utf-8")
    stop = threading.Event()
    settings = Rules(files=(str(tmp_path / "a.toml"),))
    assert read_rules(settings, stop=stop).ruleset.count == 1
    stop.set()
    with pytest.raises(ReadingStopped):
        read_rules(settings, stop=stop)


def test_too_many_loose_patterns_are_refused(tmp_path: Path) -> None:
    """Each pattern that nothing holds back is searched for in every message, so their number is bounded."""
    text = "".join(f"[[rules]]\nname = 'r{number}'\nmatch.pattern = '[0-9]{{{number + 1}}}'\nanswer.en = 'x'\n" for number in range(MAX_LOOSE_PATTERNS + 1))
    (problem,) = messages(tmp_path, text)
    assert problem.startswith(f"rules.toml:{4 * MAX_LOOSE_PATTERNS + 3}: rules[{MAX_LOOSE_PATTERNS}].match.pattern")


def test_catastrophic_pattern_cannot_be_loaded(tmp_path: Path) -> None:
    """The file is refused, with the line."""
    (problem,) = messages(tmp_path, "[[rules]]\nname = 'r'\nmatch.pattern = '((a{1,90}){1,90}){1,90}'\nanswer.en = 'x'\n")
    assert problem.startswith("rules.toml:3: rules[0].match.pattern (rule r): is no RE2 pattern (invalid repetition size")
