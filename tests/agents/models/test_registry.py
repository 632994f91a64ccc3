"""Models are found by name or path, and broken ones are refused with the command that mends them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from agents.cli import models as commands
from agents.models.manifest import FileCheck, check_files
from agents.models.pull import pull_model
from agents.models.registry import first_problem, list_names, load_manifest, models_folder, resolve_model
from schemas.errors import SetupError, UsageError
from tests.agents.models.tiny import FILES, write_folder, write_gguf

pytestmark = pytest.mark.usefixtures("home")


def _refusal(name: str) -> str:
    with pytest.raises(SetupError) as caught:
        resolve_model(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_default_model_not_here_names_the_command() -> None:
    """The line can be pasted."""
    assert _refusal("smollm2-135m") == "model 'smollm2-135m' is not here: run `answerby models pull smollm2-135m`"
    assert _refusal("hf:ORG/NAME") == "model 'hf:ORG/NAME' is not here: run `answerby models pull hf:ORG/NAME`"


def test_unknown_name_lists_what_is_known() -> None:
    """A mistyped name is answered with the right ones."""
    assert _refusal("smollm").endswith("or use one of: smollm2-135m")


def test_path_that_does_not_exist(tmp_path: Path) -> None:
    """A path is told apart from a name."""
    assert _refusal(str(tmp_path / "x.gguf")).endswith("is not here: no such folder or file")


def test_folder_by_path_works_without_a_pull(tmp_path: Path) -> None:
    """An OpenVINO folder that was never pulled resolves, with a version from its weights and no manifest."""
    folder = write_folder(tmp_path / "My Model")
    model = resolve_model(str(folder))
    assert (model.name, model.path, model.kind, model.manifest) == ("My-Model", folder, "ir", None)
    assert (model.context_tokens, model.kv_bytes_per_token, model.weights_bytes) == (4096, 768, len(FILES["openvino_model.bin"]))


def test_version_by_path_follows_content_not_place(tmp_path: Path) -> None:
    """The same weights have one version everywhere; one changed byte makes another."""
    first, second = write_folder(tmp_path / "a"), write_folder(tmp_path / "b")
    assert resolve_model(str(first)).version == resolve_model(str(second)).version
    changed = bytearray(FILES["openvino_model.bin"])
    changed[len(changed) // 2] ^= 1
    (second / "openvino_model.bin").write_bytes(changed)
    assert resolve_model(str(first)).version != resolve_model(str(second)).version


def test_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    """A folder that could not be asked anything is refused by the file that is missing."""
    folder = write_folder(tmp_path / "m")
    (folder / "openvino_tokenizer.xml").unlink()
    assert "has no openvino_tokenizer.xml" in _refusal(str(folder))
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert "neither an OpenVINO folder nor a .gguf file" in _refusal(str(tmp_path / "notes.txt"))


def test_pulled_path_is_registered_where_it_lies(tmp_path: Path) -> None:
    """A local pull copies nothing: the model resolves by name to the folder itself, and the version is the weights' hash."""
    folder = write_folder(tmp_path / "mine")
    pulled = pull_model(str(folder))
    assert pulled.made
    assert sorted(path.name for path in pulled.folder.iterdir()) == ["answerby.json"]
    model = resolve_model("mine")
    assert (model.path, model.kind, model.version) == (folder, "ir", pulled.manifest.version)
    assert model.manifest is not None
    assert model.version == model.manifest.files["openvino_model.bin"].sha256[:12]
    assert not pull_model(str(folder)).made


def test_gguf_is_registered_by_its_stem(tmp_path: Path) -> None:
    """A GGUF file is a model of its own kind."""
    file = write_gguf(tmp_path / "Small.Q4.gguf", {"general.architecture": "llama", "llama.context_length": 512})
    pull_model(str(file))
    model = resolve_model("Small.Q4")
    assert (model.path, model.kind, model.context_tokens) == (file, "gguf", 512)


def test_changed_size_is_broken_and_the_command_mends_it(tmp_path: Path) -> None:
    """A start refuses a file of another size in one line; the command in it works."""
    folder = write_folder(tmp_path / "mine")
    pull_model(str(folder))
    (folder / "openvino_model.bin").write_bytes(b"twelve bytes")
    expected = len(FILES["openvino_model.bin"])
    assert _refusal("mine") == (f"model 'mine' is broken (openvino_model.bin has 12 bytes, expected {expected}): run `answerby models pull --force {folder}`")
    pull_model(str(folder), force=True)
    assert resolve_model("mine").weights_bytes == 12


def test_gone_file_and_gone_manifest(tmp_path: Path) -> None:
    """A missing file and an unreadable manifest are told as such."""
    folder = write_folder(tmp_path / "mine")
    pull_model(str(folder))
    (folder / "openvino_tokenizer.bin").unlink()
    assert "is broken (openvino_tokenizer.bin is gone)" in _refusal("mine")
    (models_folder() / "mine" / "answerby.json").write_bytes(b"{")
    assert "is broken (answerby.json cannot be read" in _refusal("mine")


def test_same_size_other_content_is_found_by_hash(tmp_path: Path) -> None:
    """The quick check trusts sizes; the full one does not."""
    folder = write_folder(tmp_path / "mine")
    manifest = pull_model(str(folder)).manifest
    (folder / "openvino_tokenizer.bin").write_bytes(b"kot")
    assert first_problem(check_files(models_folder() / "mine", manifest, hashes=False)) is None
    checks = check_files(models_folder() / "mine", manifest, hashes=True)
    assert [check.name for check in checks if check.problem] == ["openvino_tokenizer.bin"]
    with pytest.raises(SetupError, match=r"run `answerby models pull --force"):
        commands.inspect("mine")


def test_another_model_of_that_name_needs_force(tmp_path: Path) -> None:
    """Two sources never silently share a name."""
    first, second = write_folder(tmp_path / "a" / "mine"), write_folder(tmp_path / "b" / "mine")
    pull_model(str(first))
    with pytest.raises(UsageError, match="add --force to replace it"):
        pull_model(str(second))
    pull_model(str(second), force=True)
    assert resolve_model("mine").path == second


@pytest.mark.parametrize("wanted", ["smollm", "hf:", "hf:NAME", "hf:../..", "hf:a/b/c", "/no/such/folder"])
def test_unknown_source_is_wrong_usage(wanted: str) -> None:
    """What is no source is refused before anything is fetched or written."""
    with pytest.raises(UsageError):
        pull_model(wanted)
    assert not models_folder().exists()


def test_list_shows_broken_models_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`models list --json` gives every model with its problem, `models list` the same for people."""
    pull_model(str(write_folder(tmp_path / "good")))
    pull_model(str(write_folder(tmp_path / "bad")))
    (tmp_path / "bad" / "openvino_model.bin").unlink()
    assert list_names() == ["bad", "good"]
    assert commands.list_models(json=True) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["good"]["problem"] is None
    assert rows["bad"]["problem"] == "openvino_model.bin is gone"
    assert commands.list_models() == 0
    assert "openvino_model.bin is gone" in capsys.readouterr().out.replace("\n", "")


def test_inspect_tells_files_cache_and_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`models inspect` shows every file with its check, the cache a token costs and the chat template."""
    pull_model(str(write_folder(tmp_path / "mine")))
    assert commands.inspect("mine", json=True) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["whole"]
    assert facts["kv_bytes_per_token"] == 768
    assert facts["chat_template"] == "{{ messages }}"
    assert {check.name for check in msgspec.convert(facts["files"], list[FileCheck])} == set(FILES)
    assert commands.inspect("mine") == 0
    assert "768 bytes a token" in capsys.readouterr().out


def test_plain_progress_is_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Away from a terminal a pull logs its steps on standard error and its result on standard output."""
    assert commands.pull(str(write_folder(tmp_path / "mine"))) == 0
    said = capsys.readouterr()
    assert said.err == "hashing\n"
    assert said.out.startswith(f"mine {load_manifest('mine').version}: ready")
