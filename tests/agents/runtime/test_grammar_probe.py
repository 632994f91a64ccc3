"""The probe's model is one that the pipeline's paged attention takes; what OpenVINO cannot do with such a model is written down."""

from __future__ import annotations

import openvino as ov
import pytest
from openvino._offline_transformations import paged_attention_transformation

from agents.runtime.grammar_probe import tiny_model


def test_compiled_cache_cannot_be_read_back() -> None:
    """Decision 0011 rests on this: a compiled paged-attention model is written and cannot be imported. When it can, turn the cache on."""
    model = tiny_model(100)
    paged_attention_transformation(model)
    core = ov.Core()
    exported = core.compile_model(model, "CPU").export_model()
    with pytest.raises(RuntimeError, match="k_head_size and num_k_heads are required"):
        core.import_model(exported, "CPU")
