"""Responses: the shape that consumers rely on."""

from __future__ import annotations

import uuid

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.responses import STAGES, Chunk, DeadlineReport, Latency, ModelRef, Response, Rung, Usage, response_id

RESPONSE = Response(
    response_id=response_id("default", "s-1", "e-1"),
    event_id="e-1",
    session_id="s-1",
    tenant="default",
    kind="message",
    metadata={"channel": "web"},
    outcome="partial",
    degraded=True,
    reason="deadline",
    text="It is on its",
    data=None,
    finish_reason="deadline",
    model=ModelRef("smollm2-135m", "1"),
    usage=Usage(40, 20, 6),
    deadline=DeadlineReport(300.0, 1_790_000_000_300, 1_790_000_000_280, True),
    latency_ms=Latency(queue=1.5, generate=278.5, total=280.0),
    rungs=(Rung("main", "partial", 278.0, "cut at the due"),),
    disclosure="This answer was written by an AI.",
)


def test_every_stage_of_the_contract_is_in_the_record() -> None:
    """`latency_ms` has the contract's stages and `total`, nothing else."""
    assert [*STAGES, "total"] == list(Latency.__struct_fields__)
    assert set(msgspec.to_builtins(RESPONSE)["latency_ms"]) == {*STAGES, "total"}


def test_a_response_is_a_plain_map_in_both_encodings() -> None:
    """Consumers in other languages find the same names and values whichever encoding they asked for."""
    from_msgpack = msgspec.msgpack.decode(msgspec.msgpack.encode(RESPONSE))
    from_json = msgspec.json.decode(msgspec.json.encode(RESPONSE))
    assert from_msgpack == from_json
    assert from_json["deadline"] == {"budget_ms": 300.0, "due_at_ms": 1_790_000_000_300, "answered_at_ms": 1_790_000_000_280, "met": True}
    assert from_json["model"] == {"name": "smollm2-135m", "version": "1"}
    assert from_json["schema_version"] == 1


def test_a_chunk_names_its_attempt_and_place() -> None:
    """A chunk carries what a reader needs to order and to discard."""
    chunk = msgspec.json.decode(msgspec.json.encode(Chunk("e-1", "s-1", 0, 3, "way", final=True, outcome="model")))
    assert (chunk["attempt"], chunk["seq"], chunk["final"], chunk["outcome"]) == (0, 3, True, "model")


@given(*(st.lists(st.text(max_size=12), min_size=3, max_size=3) for _ in range(2)))
def test_a_response_id_belongs_to_one_event(one: list[str], other: list[str]) -> None:
    """The id is the same for the same tenant, session and event and differs for any other, wherever the parts' borders lie."""
    assert (response_id(*one) == response_id(*other)) == (one == other)
    assert uuid.UUID(response_id(*one)).version == 5


def test_response_ids_do_not_change_between_releases() -> None:
    """Consumers deduplicate by it across our restarts and updates."""
    assert response_id("a", "bc", "d") != response_id("ab", "c", "d")
    assert response_id("default", "s-1", "e-1") == "7cb300f6-bafd-53bd-916d-f1f646128e1a"
