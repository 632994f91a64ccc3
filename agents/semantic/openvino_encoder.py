"""A learned encoder in OpenVINO: the pulled one, or a folder of the user's own; the one without a model is `ngrams`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agents.models.catalog import ENCODERS
from agents.models.manifest import check_files
from agents.models.registry import first_problem, load_manifest, models_folder
from agents.semantic.encoder import Vectors, normalise
from agents.semantic.language import is_chinese
from agents.semantic.ngrams import NgramEncoder
from agents.semantic.wordpiece import MAX_TOKENS, WordPiece
from schemas.errors import SetupError

MODEL_FILES = ("openvino_model.xml", "model.onnx")
VOCABULARY, TOKENIZER = "vocab.txt", "openvino_tokenizer.xml"

LEARNED_SHARE = 0.5
"""Of a vector's length; the rest is words as `ngrams` sees them. Chosen on the pairs of the examples, see the decision on encoders."""

_ONE_THREAD = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
"""The engines own the other cores; one thread is steadier than two that are shared."""


class OpenVinoEncoder:
    """Sentences to the mean of their tokens' last states, beside their words. A Chinese text goes by its words alone unless the folder brings a tokenizer."""

    same_words = False

    def __init__(self, folder: Path) -> None:
        """Load and compile, some 0.5 s.

        Raises:
            SetupError: a file is missing or cannot be read.
        """
        path = _first_of(folder, MODEL_FILES)
        try:
            self._tokenize, self._reads_all = _open_tokenizer(folder)
            compiled = _openvino().Core().compile_model(str(path), "CPU", _ONE_THREAD)
        except RuntimeError as error:
            msg = f"encoder {str(folder)!r} cannot be loaded ({' '.join(str(error).split())[:200]}): give a BERT-like encoder as OpenVINO or ONNX"
            raise SetupError(msg) from error
        self._inputs = [port.any_name for port in compiled.inputs]
        self._request = compiled.create_infer_request()
        self._words = NgramEncoder()
        self.name = f"{folder.name}-{_digest(path)}+{self._words.name}"
        self._learned_size = int(self._pool(["a"]).shape[1])
        self.size = self._learned_size + self._words.size

    def encode(self, texts: Sequence[str]) -> Vectors:
        """6 to 25 ms a question, one after the other: padding a batch would cost more than it saves."""
        learned = np.zeros((len(texts), self._learned_size), np.float32)
        for row, text in zip(learned, texts, strict=True):
            if self._reads_all or not is_chinese(text):
                row[:] = self._pool([text])[0]
        words = self._words.encode(texts)
        share = np.where(np.abs(learned).sum(axis=1, keepdims=True) > 0, LEARNED_SHARE, 0.0)
        return normalise(np.hstack((normalise(learned) * np.sqrt(share), words * np.sqrt(1 - share))))

    def _pool(self, texts: Sequence[str]) -> Vectors:
        numbers = np.array([self._tokenize(texts[0])], np.int64)
        given = {"input_ids": numbers, "attention_mask": np.ones_like(numbers), "token_type_ids": np.zeros_like(numbers)}
        self._request.infer({name: given[name] for name in self._inputs})
        states: Vectors = self._request.get_output_tensor(0).data
        return states.mean(axis=1) if states.ndim == 3 else states.copy()  # noqa: PLR2004  # texts, tokens, numbers: not pooled yet


def find_encoder(wanted: str) -> Path:
    """The folder of an encoder: a pulled one by its name, or a path.

    Raises:
        SetupError: it is not here or broken; the text says what to run.
    """
    folder = models_folder() / wanted
    if "/" not in wanted and folder.is_dir():
        manifest = load_manifest(wanted)
        problem = first_problem(check_files(folder, manifest, hashes=False))
        if problem is not None:
            msg = f"encoder {wanted!r} is broken ({problem}): run `answerby models pull --force {wanted}`"
            raise SetupError(msg)
        return folder if manifest.path is None else Path(manifest.path)
    path = Path(wanted).expanduser()
    if path.is_dir():
        return path.absolute()
    hint = f"run `answerby models pull {wanted}`" if wanted in ENCODERS else f"use ngrams, {', '.join(ENCODERS)} or the path of a folder"
    msg = f"encoder {wanted!r} is not here: {hint}"
    raise SetupError(msg)


def _openvino() -> Any:
    """The library, which takes a second to import and is needed by few."""
    import openvino  # noqa: PLC0415  # as said

    return openvino


def _first_of(folder: Path, names: Sequence[str]) -> Path:
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        msg = f"encoder {str(folder)!r} has no {' or '.join(names)}: give a folder with an encoder for sentences"
        raise SetupError(msg)
    return found


def _open_tokenizer(folder: Path) -> tuple[Callable[[str], list[int]], bool]:
    """The folder's tokenizer, and whether it is the model's own for every language."""
    if (folder / TOKENIZER).is_file():
        _openvino()
        import openvino_tokenizers  # noqa: F401, PLC0415  # registers its operations; only folders with such a tokenizer need it

        compiled = _openvino().Core().compile_model(str(folder / TOKENIZER), "CPU")
        return lambda text: _run_tokenizer(compiled, text), True
    settings = folder / "tokenizer_config.json"
    lower = not settings.is_file() or bool(json.loads(settings.read_text(encoding="utf-8")).get("do_lower_case", True))
    return WordPiece(_first_of(folder, (VOCABULARY,)), lower=lower).number, False


def _run_tokenizer(compiled: Any, text: str) -> list[int]:
    numbers: list[int] = compiled([text])["input_ids"][0].tolist()
    return numbers[:MAX_TOKENS]


def _digest(path: Path) -> str:
    weights = path.with_suffix(".bin") if path.suffix == ".xml" else path
    with weights.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]
