"""Finds out whether a grammar compiles, on a model of no weight beside the real one; how large it may be is `constraints`.

A grammar that fails in a pipeline's step leaves that pipeline unusable ("already in scheduling phase"), and the compiler cannot be called by itself.
So each constraint goes through a throw-away pipeline first: 1-2 ms (more for large grammars), and 60 ms to replace it after a bad one. The compiled
grammar is kept by the tokenizer, which both pipelines share, so the work is not done twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as ops

_HEAD = 8
"""Size of the one attention head: the smallest that the pipeline's attention kernels take."""


class GrammarProbe:
    """Tries grammars. `open_probe` makes the pipeline over a folder; what it gives compiles a grammar or raises RuntimeError."""

    def __init__(self, vocabulary: int, open_probe: Callable[[str], Callable[[Any], None]]) -> None:
        self._vocabulary = vocabulary
        self._open_probe = open_probe
        self._compile = self._fresh()

    def try_grammar(self, structured: Any) -> None:
        """Compile `structured`.

        Raises:
            RuntimeError: it cannot be compiled; the next one is tried on a fresh pipeline.
        """
        try:
            self._compile(structured)
        except RuntimeError:
            self._compile = self._fresh()
            raise

    def _fresh(self) -> Callable[[Any], None]:
        with tempfile.TemporaryDirectory(prefix="answerby-probe-") as folder:
            ov.save_model(tiny_model(self._vocabulary), Path(folder) / "openvino_model.xml")
            return self._open_probe(folder)


def tiny_model(vocabulary: int) -> ov.Model:
    """A stateful decoder of one layer, all zeros, in the form that the pipeline's paged attention expects."""
    ids, mask, position, beam = (
        _input("input_ids", [-1, -1], np.int64),
        _input("attention_mask", [-1, -1], np.int64),
        _input("position_ids", [-1, -1], np.int64),
        _input("beam_idx", [-1], np.int32),
    )
    table = ops.constant(np.zeros((vocabulary, _HEAD), np.float32))
    zero = ops.constant(np.float32(0))
    embedded = ops.gather(table, ids, ops.constant(np.int64(0)))
    placed = ops.add(embedded, ops.multiply(ops.unsqueeze(ops.convert(position, "f32"), ops.constant(np.int64(2))), zero))
    batch = ops.gather(ops.shape_of(ids), ops.constant(np.array([0], np.int64)), ops.constant(np.int64(0)))
    empty = ops.broadcast(zero, ops.concat([batch, ops.constant(np.array([1, 0, _HEAD], np.int64))], 0))
    sinks: list[Any] = []

    def remembered(name: str) -> Any:
        past = ops.gather(ops.read_value(empty, name, ov.Type.f32, ov.PartialShape([-1, 1, -1, _HEAD])), beam, ops.constant(np.int64(0)))
        both = ops.concat([past, _heads(placed)], 2)
        sinks.append(ops.assign(both, name))
        return both

    key, value = remembered("past_key_values.0.keypresent.0.key"), remembered("past_key_values.0.valuepresent.0.value")
    seen = ops.multiply(ops.convert(mask, "f32"), zero)
    for axis in (1, 1):
        seen = ops.unsqueeze(seen, ops.constant(np.int64(axis)))
    attended = ops.scaled_dot_product_attention(_heads(placed), key, value, seen, causal=False)
    flat = ops.reshape(ops.transpose(attended, ops.constant(np.array([0, 2, 1, 3], np.int64))), ops.constant(np.array([0, 0, _HEAD], np.int64)), True)
    logits = ops.matmul(flat, table, False, True)
    logits.output(0).tensor.set_names({"logits"})
    return ov.Model([ops.result(logits)], sinks, [ids, mask, position, beam], "grammar_probe")


def _input(name: str, shape: list[int], kind: Any) -> Any:
    parameter = ops.parameter(shape, kind, name=name)
    parameter.output(0).tensor.set_names({name})
    return parameter


def _heads(node: Any) -> Any:
    projected = ops.matmul(node, ops.constant(np.eye(_HEAD, dtype=np.float32)), False, False)
    split = ops.reshape(projected, ops.constant(np.array([0, 0, 1, _HEAD], np.int64)), True)
    return ops.transpose(split, ops.constant(np.array([0, 2, 1, 3], np.int64)))
