"""New facts over known ones: order, history, denials, bounds."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.facts import forget, merge
from schemas.facts import HISTORY, Fact, Facts, Number, Text, YesNo, dump_facts
from schemas.settings_facts import Facts as FactsSettings

SETTINGS = FactsSettings()


def fact(value: str, at_ms: int, *, slot: str = "name", event: str = "", offset: int = 0, denied: bool = False, pinned: bool = True) -> Fact:
    """One fact as `extract` would give it."""
    return Fact(slot, Text(value), event or f"e{at_ms}", at_ms, offset, denied=denied, pinned=pinned)


def test_newer_supersedes_with_history() -> None:
    """The newer value holds, and what it replaced says by which event."""
    known = merge(Facts(), [fact("Bob", 1), fact("Bill", 2)], SETTINGS)
    name = known.find("name")
    assert name is not None
    assert name.value == Text("Bill")
    assert [(past.value, past.event_id, past.superseded_by) for past in name.history] == [(Text("Bob"), "e1", "e2")]


def test_late_arrival_changes_nothing_but_history() -> None:
    """An older fact that comes later stands in the history alone; of one millisecond the greater offset wins."""
    known = merge(merge(Facts(), [fact("Bill", 2)], SETTINGS), [fact("Bob", 1)], SETTINGS)
    assert known == merge(Facts(), [fact("Bob", 1), fact("Bill", 2)], SETTINGS)
    same_time = merge(merge(Facts(), [fact("Bill", 5, offset=8)], SETTINGS), [fact("Bob", 5, offset=7)], SETTINGS)
    assert same_time.facts[0].value == Text("Bill")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["Ann", "Bob", "Eve"]), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=5, unique_by=lambda drawn: drawn[1:])
)
def test_order_of_arrival_does_not_matter(drawn: list[tuple[str, int, int]]) -> None:
    """Whatever order facts come in, one value holds: the one last said."""
    found = [fact(value, at_ms, offset=offset, event=f"e{offset}") for value, at_ms, offset in drawn]
    values = {merge(Facts(), order, SETTINGS).facts[0].value for order in itertools.permutations(found)}
    assert values == {max(found, key=lambda one: one.stamp).value}


def test_restating_adds_no_history() -> None:
    """A fact said again is the same fact, newer."""
    known = merge(merge(Facts(), [fact("Bob", 1)], SETTINGS), [fact("bob", 2)], SETTINGS)
    assert known.facts[0].history == ()
    assert known.facts[0].at_ms == 2


def test_history_is_bounded() -> None:
    """A hundred changes of mind are remembered to the last few."""
    known = merge(Facts(), [fact(f"N{number}", number) for number in range(100)], SETTINGS)
    assert len(known.facts[0].history) == HISTORY
    assert known.facts[0].history[-1].value == Text("N98")


def test_denial_of_what_is_known() -> None:
    """`not Bob` ends Bob, leaves Bill alone, and is remembered where nothing is known."""
    assert merge(Facts((fact("Bob", 1),)), [fact("Bob", 2, denied=True)], SETTINGS).facts[0].denied
    assert merge(Facts((fact("Bill", 1),)), [fact("Bob", 2, denied=True)], SETTINGS).facts[0] == fact("Bill", 1)
    assert merge(Facts(), [fact("Bob", 2, denied=True)], SETTINGS).facts[0].denied


def test_oldest_unpinned_goes_first() -> None:
    """Beyond `max_facts` pinned facts stay while there are others."""
    bounded = FactsSettings(max_facts=2)
    known = merge(Facts(), [fact("a", 1, slot="one"), fact("b", 3, slot="two", pinned=False), fact("c", 2, slot="three", pinned=False)], bounded)
    assert [one.slot for one in known.facts] == ["one", "two"]


def test_bytes_are_bounded() -> None:
    """Beyond `max_bytes` the oldest go, whatever their number."""
    bounded = FactsSettings(max_bytes=600)
    known = merge(Facts(), [fact("x" * 150, number, slot=f"s{number}") for number in range(20)], bounded)
    assert 0 < len(known.facts) < 5
    assert known.facts[-1].slot == "s19"


def test_foreign_fact_is_replaced_by_its_slot() -> None:
    """A fact of a newer release stays until one of its slot is stated."""
    foreign = {"slot": "mood", "value": {"type": "colour", "rgb": 3}, "event_id": "e", "at_ms": 1}
    known = Facts(foreign=(foreign,))
    assert merge(known, [fact("Bob", 2)], SETTINGS).foreign == (foreign,)
    assert merge(known, [fact("gay", 2, slot="mood")], SETTINGS).foreign == ()


def test_nothing_new_is_the_same_object() -> None:
    """A turn that states nothing rewrites nothing."""
    known = Facts((fact("Bob", 1),))
    assert merge(known, [], SETTINGS) is known


def test_forget_leaves_no_personal_fact() -> None:
    """Without consent personal facts are not kept, or none at all."""
    known = Facts(
        (Fact("email", Text("a@b.c"), "e", 1, personal=True), Fact("quantity", Number(3), "e", 1, key="mug"), Fact("likes", YesNo(True), "e", 1, key="tea"))
    )
    assert [one.slot for one in forget(known).facts] == ["quantity", "likes"]
    assert dump_facts(forget(known, personal=False)) == {}
