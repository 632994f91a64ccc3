"""The directory of persistent tables: whose it is, who holds it, and when it cannot be its changelogs'; the real refusals run in `live`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from rocksdict import Options, Rdict

from schemas.errors import SetupError
from streams.data_dir import OFFSET_KEY, TABLES, DataDir, Owner, Store, find_problem

MINE = Owner("answerby", "", "cluster-1")
PLACE = TopicPartition("answerby-sessions-changelog", 0)
LEFT = 1_000_000.0
"""When the store was last written, Unix seconds."""


def store(offset: int) -> list[Store]:
    """One store that holds its changelog up to `offset`."""
    return [Store(PLACE, offset, LEFT)]


def test_only_one_worker_holds_a_directory(tmp_path: Path) -> None:
    """The second one is told to take its own; after the first has gone it may have this one."""
    first, second = DataDir(tmp_path), DataDir(tmp_path)
    first.claim()
    with pytest.raises(SetupError, match="in use by another worker"):
        second.claim()
    first.release()
    second.claim()
    second.release()


def test_a_store_is_known_by_its_offset_and_a_cleared_directory_has_none(tmp_path: Path) -> None:
    """What a real store holds is read while nobody has it open, other tables' stores are left alone, and `clear` removes all."""
    data = DataDir(tmp_path)
    for name in ("sessions-3", "other-1"):
        folder = tmp_path / TABLES / f"{name}.db"
        folder.parent.mkdir(parents=True, exist_ok=True)
        db = Rdict(str(folder), options=Options(raw_mode=True))
        db.put(OFFSET_KEY, b"41")
        db.close()
    data.write_owner(MINE)
    (found,) = data.stores({"sessions": "changelog"})
    assert (found.place, found.offset) == (TopicPartition("changelog", 3), 41)
    assert found.written == pytest.approx(os.stat(tmp_path).st_mtime, abs=60)
    assert data.read_owner() == MINE
    data.clear()
    assert data.stores({"sessions": "changelog"}) == []
    assert data.read_owner() is None


def test_a_store_that_cannot_be_read_names_the_way_out(tmp_path: Path) -> None:
    """Bytes that are no store end in one line with the command that mends it."""
    folder = tmp_path / TABLES / "sessions-0.db"
    folder.mkdir(parents=True)
    (folder / "CURRENT").write_bytes(b"not a manifest\n")
    with pytest.raises(SetupError, match=r"cannot be read .* --rebuild-state"):
        DataDir(tmp_path).stores({"sessions": "changelog"})


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (Owner("other", "", "cluster-1"), "another app"),
        (Owner("answerby", "eu-", "cluster-1"), "another topic_prefix"),
        (Owner("answerby", "", "cluster-2"), "another cluster"),
    ],
)
def test_tables_of_another_owner_are_refused(owner: Owner, says: str) -> None:
    """Another application, prefix or cluster is said by name; an empty directory of another is taken."""
    assert says in str(find_problem(owner, MINE, store(5), {PLACE: 10}, {}))
    assert find_problem(owner, MINE, [], {}, {}) is None


@pytest.mark.parametrize(
    ("offset", "end", "first_left", "refused"),
    [
        (9, 10, (9, LEFT - 5), False),
        (10, 10, None, True),
        (5, 0, None, True),
        (5, 10, (5, LEFT + 3600), True),
        (5, 10, (7, LEFT + 3600), False),
        (5, 10, (5, LEFT + 1), False),
    ],
    ids=["all of it", "past its end", "an empty log", "a record younger than the store", "compacted away", "two clocks"],
)
def test_a_store_that_its_changelog_cannot_have_made_is_refused(offset: int, end: int, first_left: tuple[int, float] | None, refused: bool) -> None:
    """A changelog that was deleted and made again is shorter than the store, or its record at the store's offset is younger than the store."""
    stamps = {} if first_left is None else {PLACE: first_left}
    assert (find_problem(MINE, MINE, store(offset), {PLACE: end}, stamps) is not None) is refused
