"""Child process that turns a GGUF file into an OpenVINO folder and proves that both answer alike; its parent's side is `agents.models.conversion`.

It is a process of its own because the native libraries hold the interpreter for seconds and keep half a gigabyte afterwards.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import openvino_genai  # type: ignore[import-untyped,unused-ignore]  # the package has no types

PROBES = ("What is the capital of France?", "My order 4711 is late. What can I do?", "你好！请推荐一本书。")
"""Few and short: each costs half a second, and a wrong conversion differs within the first tokens."""

PROBE_TOKENS = 16
REFUSED = 3
"""Exit status: converted, but it answers otherwise than its source."""

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Convert `sys.argv[1]` (GGUF) into the folder `sys.argv[2]`; argv[3] is the parent's pid, argv[4:6] a question and a word its answer must hold."""
    source, target, parent, question, word = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    _die_with(parent)
    probes = (question, *PROBES) if question and question not in PROBES else PROBES
    _say("reading the source and asking it")
    tokenizer, expected = _ask(source, probes, save=True)
    _say("writing the OpenVINO folder")
    _gather(source, target, tokenizer)
    del tokenizer
    _say("asking the converted model")
    _, found = _ask(target, probes, save=False)
    for probe, (before, _), (after, text) in zip(probes, expected, found, strict=True):
        if before != after:
            return _refuse(f"{probe!r} is answered with tokens {after} instead of {before}")
        if probe == question and word.lower() not in text.lower():
            return _refuse(f"{probe!r} is answered with {text!r}, without {word!r}")
    (target / "conversion.json").write_text(json.dumps({"made_with": openvino_genai.get_version()}), encoding="utf-8")
    return 0


def _ask(path: Path, probes: tuple[str, ...], *, save: bool) -> tuple[Any, list[tuple[list[int], str]]]:
    """Load `path` and answer the probes greedily; with `save` the library leaves its OpenVINO files beside a GGUF."""
    keep = {"enable_save_ov_model": True} if save else {}
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1
    tokenizer = openvino_genai.Tokenizer(path, **keep)
    pipe = openvino_genai.ContinuousBatchingPipeline(path, tokenizer, scheduler, "CPU", **keep)
    wanted = openvino_genai.GenerationConfig(max_new_tokens=PROBE_TOKENS, do_sample=False)
    answers = []
    for number, probe in enumerate(probes):
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": probe}], add_generation_prompt=True)
        handle = pipe.add_request(number, prompt, wanted)
        while pipe.has_non_finished_requests():
            pipe.step()
        tokens = list(handle.read_all()[0].generated_ids)
        answers.append((tokens, tokenizer.decode(tokens)))
    return tokenizer, answers


def _gather(source: Path, target: Path, tokenizer: Any) -> None:
    """Move what the library left beside the GGUF, and write down what else an OpenVINO folder carries."""
    for path in source.parent.glob("openvino_*"):
        path.replace(target / path.name)
    (target / "chat_template.jinja").write_text(tokenizer.get_original_chat_template(), encoding="utf-8")
    ids = {"bos_token_id": tokenizer.get_bos_token_id(), "eos_token_id": [tokenizer.get_eos_token_id()], "pad_token_id": tokenizer.get_pad_token_id()}
    (target / "generation_config.json").write_text(json.dumps(ids, indent=2) + "\n", encoding="utf-8")


def _die_with(parent: int) -> None:
    """A parent that is killed must not leave half a gigabyte running: ask the kernel to end us with it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def _refuse(why: str) -> int:
    _say(f"refused: {why}")
    return REFUSED


def _say(text: str) -> None:
    sys.stdout.write(f"answerby: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
