"""Choosing a threshold; and that the shipped settings keep their promise on the pairs of the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.semantic.encoder import open_encoder
from agents.semantic.tune import HELD_OUT, LOWEST, Judged, Pair, count_hits, judge, read_pairs, recommend
from schemas.errors import UsageError
from schemas.settings_ladder import SemanticCache

EXAMPLES = Path(__file__).parents[3] / "examples" / "semantic_pairs.jsonl"

PAIRS = read_pairs(EXAMPLES)


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    """All example pairs under the shipped encoder."""
    return judge(PAIRS, open_encoder(SemanticCache().encoder))


@pytest.mark.parametrize("chosen_by", [True, False])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_shipped_settings_give_no_wrong_hit_and_half_of_the_right_ones(judged: list[Judged], language: str, chosen_by: bool) -> None:
    """With the recommended threshold, in each language, among the pairs it was chosen by and among those held out."""
    threshold = recommend(judged).threshold
    assert threshold is not None
    found = count_hits([one for one in judged if one.pair.language == language and (one.pair.set != HELD_OUT) == chosen_by], threshold)
    assert found.wrong == 0
    assert found.right >= 0.5 * found.of_right
    assert found.of_right >= 15


@pytest.mark.parametrize("kind", ["number", "negation", "antonym", "name", "direction", "unit", "detail", "unrelated"])
def test_the_pairs_cover_each_kind_of_difference_in_both_languages(kind: str) -> None:
    """So that the promise above means something."""
    assert {pair.language for pair in PAIRS if pair.kind == kind and not pair.same} == {"en", "zh"}
    assert len(PAIRS) >= 180


def test_without_guards_no_threshold_of_use_is_safe(judged: list[Judged]) -> None:
    """Similarity alone lets wrong ones through at the very top: the guards are what the promise rests on."""
    assert count_hits(judged, 1.0, guards=False).wrong > 0


def one(similarity: float, *, same: bool, guard: str | None = None, held: bool = False) -> Judged:
    """A judged pair."""
    return Judged(Pair("a", "b", same, set=HELD_OUT if held else ""), similarity, guard)


def test_the_threshold_stands_above_the_nearest_wrong_pair() -> None:
    """With a margin; pairs that a guard holds back, and held-out ones, do not move it."""
    pairs = [one(0.8, same=False), one(0.99, same=False, guard="numbers"), one(0.95, same=False, held=True), one(0.9, same=True)]
    assert recommend(pairs).threshold == pytest.approx(0.83)
    assert recommend([one(0.1, same=False), one(0.9, same=True)]).threshold == LOWEST


def test_when_no_threshold_is_safe_none_is_recommended() -> None:
    """And the pair that rules them out is shown."""
    advice = recommend([one(0.99, same=False), one(0.9, same=True)])
    assert advice.threshold is None
    assert "'a' and 'b'" in advice.why


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": "x", "b": "y", "same": true}\n\n{"a": "x"}', "line 3"),
        ('{"a": "x", "b": "y", "same": true}\nnonsense', "line 2"),
        ('{"a": "x", "b": "y", "same": "yes"}', "line 1"),
        ('{"a": "", "b": "y", "same": true}', "line 1"),
        ('{"a": "x", "b": "y", "same": true, "sort": 1}', "sort"),
        ('{"a": "x", "b": "y", "same": true}', "not both kinds"),
        ("", "not both kinds"),
    ],
)
def test_a_wrong_file_is_told_by_line(tmp_path: Path, text: str, said: str) -> None:
    """With what would be right."""
    file = tmp_path / "pairs.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        read_pairs(file)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Missing, a folder, or not text."""
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    for name, said in (("none.jsonl", "cannot be read"), ("", "cannot be read"), ("binary.jsonl", "not UTF-8")):
        with pytest.raises(UsageError, match=said):
            read_pairs(tmp_path / name)
