"""Settings from file and environment, and the three `config` commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agents.cli.config import app, check, init, load_settings, load_with_origins, show
from agents.cli.worker import worker
from schemas.errors import ConfigError, UsageError
from schemas.settings import Settings
from schemas.settings_tree import describe_field, format_path, iterate_keys, settings_type, type_at


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _write(folder: Path, text: str) -> Path:
    file = folder / "given.toml"
    file.write_text(text, encoding="utf-8")
    return file


def _message(file: Path | None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(file, environ or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("here")
def test_nothing_given_is_all_defaults() -> None:
    """Without a file and variables the settings are the defaults."""
    assert load_settings(None, {}) == Settings()


def test_file_in_working_directory_is_found(here: Path) -> None:
    """`answerby.toml` of the working directory counts without being named."""
    (here / "answerby.toml").write_text("deadline.default_ms = 300\n", encoding="utf-8")
    assert load_settings(None, {}).deadline.default_ms == 300


def test_environment_wins_over_file(here: Path) -> None:
    """A variable replaces the file's value, and other values of the file stay."""
    file = _write(here, "[deadline]\ndefault_ms = 300\nmax_ms = 900\n")
    settings = load_settings(file, {"ANSWERBY__DEADLINE__DEFAULT_MS": "400", "ANSWERBY_HOME": "/x", "OTHER": "1"})
    assert (settings.deadline.default_ms, settings.deadline.max_ms) == (400, 900)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("variable", "raw", "path", "expected"),
    [
        ("ANSWERBY__APP__ID", "5", ("app", "id"), "5"),
        ("ANSWERBY__APP__ID", "true", ("app", "id"), "true"),
        ("ANSWERBY__KAFKA__BOOTSTRAP", "a:1,b:2", ("kafka", "bootstrap"), "a:1,b:2"),
        ("ANSWERBY__KAFKA__BOOTSTRAP", '"a:1"', ("kafka", "bootstrap"), "a:1"),
        ("ANSWERBY__KAFKA__SECURITY__PASSWORD", '"half', ("kafka", "security", "password"), '"half'),
        ("ANSWERBY__KAFKA__SECURITY__PASSWORD", "1\nx = 2", ("kafka", "security", "password"), "1\nx = 2"),
        ("ANSWERBY__KAFKA__SECURITY__CAFILE", "", ("kafka", "security", "cafile"), ""),
        ("ANSWERBY__DEADLINE__RESERVE_MS", "12.5", ("deadline", "reserve_ms"), 12.5),
        ("ANSWERBY__WORKER__CPUS", "[0, 1]", ("worker", "cpus"), (0, 1)),
        ("ANSWERBY__WORKER__CPUS__0", "1", ("worker", "cpus"), (1,)),
        ("ANSWERBY__LADDER__RUNGS", '["main", "default"]', ("ladder", "rungs"), ("main", "default")),
        ("ANSWERBY__MODELS__0__ENGINE", "scripted", ("models", 0, "engine"), "scripted"),
    ],
)
def test_variable_is_read_as_its_key_needs(variable: str, raw: str, path: tuple[str | int, ...], expected: object) -> None:
    """A TOML literal counts where the key takes it; anything else is the text as it stands."""
    value: object = load_settings(None, {variable: raw})
    for step in path:
        value = value[step] if isinstance(step, int) else getattr(value, step)  # type: ignore[index]
    assert value == expected


@pytest.mark.usefixtures("here")
def test_variables_make_and_change_models_and_texts() -> None:
    """Indexes in order add models behind the default one, and a locale's text is added to the defaults."""
    environ = {f"ANSWERBY__MODELS__{index}__NAME": name for index, name in [(2, "b"), (1, "a")]}
    environ |= {"ANSWERBY__LADDER__RUNGS": '["main", "a", "b", "default"]', "ANSWERBY__LADDER__DEFAULT_TEXT__DE": "Gleich."}
    settings = load_settings(None, environ)
    assert [model.name for model in settings.models] == ["main", "a", "b"]
    assert settings.ladder.default_text == {**Settings().ladder.default_text, "de": "Gleich."}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deadline.default_ms = -1", "deadline.default_ms: -1 is wrong; must be a number > 0"),
        ("deadline.default_ms = inf", "deadline.default_ms: inf is wrong; must be a number > 0"),
        ("deadline.default_ms = nan", "deadline.default_ms: nan is wrong; must be a number > 0"),
        ('worker.store = "x"', "worker.store: 'x' is wrong; one of: memory, rocksdb"),
        ("deadline.defult_ms = 5", "deadline.defult_ms: unknown key; did you mean deadline.default_ms?"),
        ("kafka.metrics_port = 5", "kafka.metrics_port: unknown key; did you mean worker.metrics_port?"),
        ("[[models]]\nthreads = 0", "models[0].threads: 0 is wrong; must be a whole number from 1 to 1024, or left out"),
        ("[[models]]\nthread = 1", "models[0].thread: unknown key; did you mean models[0].threads?"),
        ("[[models]]\n[[models]]\ncpus = [0, -1]", "models[1].cpus[1]: -1 is wrong; must be a whole number >= 0"),
        ("kafka.partitions = true", "kafka.partitions: true is wrong; must be a whole number from 1 to 1000"),
        ("kafka = 5", "kafka: 5 is wrong; must be a table"),
        ('session.locale = ""', "session.locale: '' is wrong; must be text of 1 to 35 characters"),
        ('[policy.disclosure]\nen = "x"\nzh = 5', "policy.disclosure.zh: 5 is wrong; must be text"),
        ("kafka.security.password = 12345", "kafka.security.password: the value is wrong; must be text"),
        ("[[rules.inline]]\nfoo = 1", "rules.inline[0].foo: unknown key; known here: name, match, answer, when, priority, examples"),
        ("kafka.bar = 5", "kafka.bar: unknown key; known here: bootstrap, partitions, topic_prefix, replication, security"),
        ("kafka.metrcs_port = 5", "kafka.metrcs_port: unknown key; did you mean worker.metrics_port?"),
        ('app.id = "a b"', "app.id: 'a b' is wrong; must be text matching ^[A-Za-z0-9._-]{1,100}\\Z"),
    ],
)
def test_wrong_key_or_value_is_one_line(here: Path, text: str, message: str) -> None:
    """The line names the key, what is wrong with which value, and what would be right; a password is never told."""
    assert _message(_write(here, text)) == message


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("variable", "raw", "message"),
    [
        ("ANSWERBY__DEADLINE__DEFULT_MS", "1", "ANSWERBY__DEADLINE__DEFULT_MS: unknown key; did you mean ANSWERBY__DEADLINE__DEFAULT_MS?"),
        ("ANSWERBY__XX", "1", "ANSWERBY__XX: unknown key; see `answerby config init` for every key"),
        ("ANSWERBY__DEADLINE__FOO", "1", "ANSWERBY__DEADLINE__FOO: unknown key; see `answerby config init` for every key"),
        ("ANSWERBY__KAFKA", "1", "ANSWERBY__KAFKA: is a section; name one of its keys, such as ANSWERBY__KAFKA__BOOTSTRAP"),
        ("ANSWERBY__MODELS__2__NAME", "a", "ANSWERBY__MODELS__2__NAME: index 2 skips entries; models has 1, so the next is 1"),
        ("ANSWERBY__DEADLINE__MIN_MS", "x", "deadline.min_ms: 'x' from ANSWERBY__DEADLINE__MIN_MS is wrong; must be a number >= 0"),
        ("ANSWERBY__DEADLINE__MAX_MS", "inf", "deadline.max_ms: inf from ANSWERBY__DEADLINE__MAX_MS is wrong; must be a number > 0"),
    ],
)
def test_wrong_variable_is_named(variable: str, raw: str, message: str) -> None:
    """What the environment has wrong is told by the variable's name."""
    assert _message(None, {variable: raw}) == message


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (b"[deadline\n", 1, "not TOML"),
        (b"a = 1\nb = [1,\n", 2, "not TOML"),
        (b"a = 1\r\nb = \xff\n", 2, "byte 0xff is not UTF-8"),
        (b"a = 1\na = 2\n", 2, "not TOML"),
    ],
)
def test_unreadable_file_is_told_by_line(here: Path, content: bytes, line: int, what: str) -> None:
    """A file that is not TOML is refused with its name and the line to mend."""
    file = here / "given.toml"
    file.write_bytes(content)
    assert _message(file).startswith(f"{file}:{line}: {what}")


def test_file_that_cannot_be_opened_is_told(here: Path) -> None:
    """A missing file and a folder in its place are configuration errors, not tracebacks."""
    assert _message(here / "none.toml") == f"{here / 'none.toml'}: no such file; name one that exists, or write it by `answerby config init`"
    assert _message(here) == f"{here}: cannot be read (Is a directory); name a readable file"


def test_template_has_every_key_and_loads_back_equal(here: Path) -> None:
    """`config init` writes each key with its description, and the file means exactly the defaults."""
    assert init() == 0
    text = (here / "answerby.toml").read_text(encoding="utf-8")
    assert load_settings(None, {}) == Settings()
    root = settings_type(Settings)
    for key in iterate_keys(root):
        section = type_at(root, key[:-1]) if len(key) > 1 else root
        field = next(field for field in section.fields if field.name == key[-1])  # type: ignore[union-attr]
        assert describe_field(field), f"{format_path(key)} has no description"
        assert describe_field(field) in text
        assert f"\n{key[-1]} = " in text or f"\n# {key[-1]} = " in text


def test_template_keeps_an_existing_file(here: Path) -> None:
    """`config init` does not overwrite without --force."""
    (here / "answerby.toml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="--force"):
        init()
    assert (here / "answerby.toml").read_text(encoding="utf-8") == "mine"
    assert init(force=True) == 0
    assert load_settings(None, {}) == Settings()


def test_show_masks_secrets_and_tells_origins(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`config show` gives what is in force, where it came from, and no password, in both forms."""
    file = _write(here, '[deadline]\ndefault_ms = 300\nmin_ms = 10\n[kafka.security]\npassword = "hunter2"\n')
    monkeypatch.setenv("ANSWERBY__DEADLINE__DEFAULT_MS", "400")
    assert show(config=file) == 0
    text = capsys.readouterr().out
    assert f"min_ms = 10  # {file}\n" in text
    assert "default_ms = 400  # environment ANSWERBY__DEADLINE__DEFAULT_MS\n" in text
    assert show(config=file, json=True) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["settings"]["deadline"]["default_ms"] == 400
    assert plain["origins"]["deadline.default_ms"] == "environment ANSWERBY__DEADLINE__DEFAULT_MS"
    assert plain["origins"]["kafka.security.password"] == str(file)
    assert "hunter2" not in text + json.dumps(plain)


def test_shown_settings_load_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `config show` prints is itself a file with the same meaning, odd characters included."""
    odd = 'tab\t quote" back\\ del\x7f 中文'
    file = _write(here, r'session.instructions = "tab\t quote\" back\\ del\u007f 中文"')
    before = load_settings(file, {})
    assert before.session.instructions == odd
    show(config=file)
    assert load_settings(_write(here, capsys.readouterr().out), {}) == before


def test_check_answers_zero_or_raises_with_exit_code_two(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`config check` is quiet success on a right file and an error of exit code 2 on a wrong one."""
    assert check(config=_write(here, "deadline.default_ms = 300")) == 0
    assert "1 values given" in capsys.readouterr().out
    with pytest.raises(ConfigError) as caught:
        check(config=_write(here, "nope = 1"))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[scenarios.shop.ladder.default_text]\nen = "Order {state.order"', "scenarios.shop.ladder.default_text.en"),
        ('[ladder]\nrungs = ["default", "main"]', "ladder.rungs[1]"),
        ('[cache]\nshared = "localhost:6379"', "cache.shared"),
        ('[semantic_cache]\nencoder = "minilmm"\n[scenarios.faq.semantic_cache]\nthreshold = 0.9', "semantic_cache.encoder"),
        ('[[rules.inline]]\nname = "a"\nmatch = { pattern = "(" }\nanswer = { en = "x" }', "rules.inline[0].match.pattern"),
        ('[kafka]\nbootstrap = "localhost"', "kafka.bootstrap"),
        ('[kafka.security]\nprotocol = "SSL"\ncafile = "gone.pem"', "kafka.security.cafile"),
        ('[kafka.security]\nprotocol = "SASL_PLAINTEXT"', "kafka.security.username"),
        ("[worker]\ncpus = [4095]", "worker.cpus"),
        ('[worker]\ndata_dir = "given.toml/data"', "worker.data_dir"),
        ('[[models]]\npath = "models/gone"', "models[0].path"),
        ('[[models]]\npath = "./gone.gguf"', "models[0].path"),
    ],
)
def test_check_and_worker_refuse_the_same(here: Path, text: str, key: str) -> None:
    """What only a start would have found is told by `config check`, and by `worker` in the same words before it starts anything."""
    with pytest.raises(ConfigError) as caught:
        check(config=_write(here, text))
    with pytest.raises(ConfigError) as refused:
        worker(config=_write(here, text))
    assert key in caught.value.key
    assert str(refused.value) == str(caught.value)


def test_a_worker_says_what_has_no_effect(here: Path) -> None:
    """The warnings of `config check` stand in the worker's log as well."""
    file = _write(here, 'ladder.rungs = ["default"]\nmodels = []\ncache.ttl_s = 60\nkafka.bootstrap = "127.0.0.1:1"\nworker.metrics_port = 0')
    with subprocess.Popen([sys.executable, "-m", "agents.cli", "worker", "-c", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        said = next((line for line in process.stdout if b"setting without effect" in line), b"")
        process.kill()
    assert b"cache.ttl_s: no ladder has the rung" in said


def test_what_is_still_to_be_pulled_is_a_warning(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A model and an encoder that a command can bring are no mistake, and the command is told; a scenario that needs neither is told of neither."""
    monkeypatch.setenv("ANSWERBY_HOME", str(here / "home"))
    text = '[[models]]\npath = "hf:org/some"\n[semantic_cache]\nencoder = "minilm"\n'
    assert check(config=_write(here, text)) == 0
    assert "warning: models[0].path: model 'hf:org/some' is not here; run `answerby models pull hf:org/some`\n" in capsys.readouterr().out
    assert check(config=_write(here, text + "[scenarios.faq.semantic_cache]\nthreshold = 0.9")) == 0
    assert "warning: semantic_cache.encoder: encoder 'minilm' is not here; run `answerby models pull minilm`\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[rules]\nfiles = ["a.toml"]\n[[ rules ]] # mine\nname = "a"\n', 3),
        ('[[rules]]\nname = "a"\n[rules]\nfiles = ["a.toml"]\n', 3),
        ('rules.files = ["a.toml"]\n[[rules]]\nname = "a"\n', 2),
    ],
)
def test_rules_beside_rules_are_told_their_other_name(here: Path, text: str, line: int) -> None:
    """TOML does not allow `[[rules]]` beside `[rules]`: the message has the name that works, which then does."""
    file = _write(here, text)
    assert _message(file) == f"{file}:{line}: `[[rules]]` cannot stand beside other keys of [rules]; write [[rules.inline]] for each rule of this file"
    whole = '[rules]\nfiles = []\n[[rules.inline]]\nname = "a"\nmatch.any = ["hi"]\nanswer.en = "x"\n'
    assert len(load_settings(_write(here, whole), {}).rules.inline) == 1


def test_check_warns_of_what_does_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cache that stands in no ladder is a warning, and still right."""
    assert check(config=_write(here, 'ladder.rungs = ["main", "default"]\ncache.ttl_s = 60')) == 0
    assert "warning: cache.ttl_s: no ladder has the rung 'cache'; add it to ladder.rungs or leave the key out\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["客服", "a b", "a.b", 'quo"te'])
def test_a_shown_scenario_loads_back(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A scenario of any name comes back from what `config show` prints, with where it came from."""
    file = _write(here, f"[scenarios.'{name}']\npriority = 7\n")
    before = load_settings(file, {})
    show(config=file)
    text = capsys.readouterr().out
    assert f"priority = 7  # {file}\n" in text
    assert load_settings(_write(here, text), {}) == before


def test_short_option_names_the_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-c FILE` reaches the command."""
    file = _write(here, "deadline.default_ms = 300")
    assert app(["check", "-c", str(file)], result_action="return_value") == 0
    assert str(file) in capsys.readouterr().out


def test_origins_follow_what_replaces_them(here: Path) -> None:
    """A variable that replaces a whole list takes over the origin of its entries."""
    file = _write(here, '[[models]]\nengine = "scripted"\n')
    origins = load_with_origins(file, {"ANSWERBY__MODELS": "[{threads = 2}]"}).origins
    assert origins == {"models": "environment ANSWERBY__MODELS"}
