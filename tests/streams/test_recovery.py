"""Changelog records on their way back into tables, both kinds of stores, without a broker; whole recoveries are in `live`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from faust.types import TP

from schemas.errors import SetupError
from schemas.session import TableName
from schemas.settings import App, Settings, Worker
from streams.app import WorkerApp, build_app
from streams.partitions import PartitionBoard
from streams.recovery import AT_ONCE, BatchRecovery
from streams.tables import Place, TableSet
from streams.topics import Topics
from tests.support import run

STORES = pytest.mark.parametrize("store", ["memory", "rocksdb"])


@dataclass(frozen=True, slots=True)
class Row:
    """What the client reads of a changelog, as far as it matters here."""

    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 1
    timestamp: int | None = 1_000


def always() -> bool:
    """The partitions stay."""
    return True


class Rig:
    """An application with its tables, and one changelog partition that is being recovered."""

    def __init__(self, folder: Path, store: str) -> None:
        settings = Settings(app=App(id="rig"), worker=Worker(store=cast("Any", store), data_dir=str(folder)))
        topics = Topics.of(settings)
        changelogs: dict[TableName, str] = {"sessions": topics.sessions_changelog, "answers": topics.answers_changelog}
        self.app: WorkerApp = build_app(settings, topics, PartitionBoard(session_timeout_s=6.0))
        self.tables = TableSet(self.app, changelogs, partitions=4, on_stall=lambda _: None, stall_s=60.0)
        self.tp = TP(topics.sessions_changelog, 1)
        self.recovery.add_active(cast("Any", self.app.tables)["sessions"], self.tp)

    @property
    def recovery(self) -> BatchRecovery:
        """The application's."""
        return self.app.recovery

    def take(self, rows: list[Row], is_current: Callable[[], bool] = always) -> None:
        """One fetch."""
        run(self.recovery.take(self.tp, rows, is_current))

    def value(self, key: bytes) -> bytes | None:
        """What the table holds now."""
        return self.tables.get("sessions", key, Place(1))

    @property
    def counted(self) -> tuple[int, int]:
        """Entries and bytes, as the ledger has them."""
        return self.tables.ledger.entries("sessions", (1,)), self.tables.ledger.size("sessions", (1,))


@STORES
def test_a_table_holds_the_newest_values_and_no_deleted_ones(tmp_path: Path, store: str) -> None:
    """Later records win, also within one fetch, a null deletes, a record without a key is passed over, and the ledger counts what is left."""
    rig = Rig(tmp_path, store)
    rig.take([Row(0, b"a", b"1"), Row(1, b"b", b"1"), Row(2, b"a", b"22"), Row(3, b"b", None), Row(4, None, b"x"), Row(7, b"c", None)])
    assert (rig.value(b"a"), rig.value(b"b"), rig.value(b"c")) == (b"22", None, None)
    rig.take([Row(8, b"b", b"again"), Row(9, b"a", None)])
    assert (rig.value(b"a"), rig.value(b"b")) == (None, b"again")
    assert rig.counted == (1, len(b"b" + b"again"))
    assert rig.recovery.active_offsets[rig.tp] == 9


@STORES
def test_what_was_read_is_not_taken_again(tmp_path: Path, store: str) -> None:
    """A recovery that is begun again reads from where it stood: records up to there change nothing."""
    rig = Rig(tmp_path, store)
    rig.take([Row(5, b"a", b"new")])
    rig.take([Row(4, b"a", b"old"), Row(5, b"a", b"old")])
    assert rig.value(b"a") == b"new"
    assert rig.recovery.active_offsets[rig.tp] == 5


@STORES
def test_a_fetch_ends_where_partitions_move(tmp_path: Path, store: str) -> None:
    """A long fetch is taken in slices, and no slice is taken after the partitions went; nor is a partition that is nobody's here."""
    rig = Rig(tmp_path, store)
    answers = iter((True, False))
    rig.take([Row(number, b"k%d" % number, b"v") for number in range(3 * AT_ONCE)], lambda: next(answers))
    assert rig.recovery.active_offsets[rig.tp] == AT_ONCE - 1
    assert rig.counted[0] == AT_ONCE
    rig.recovery.active_tps.clear()
    rig.take([Row(5 * AT_ONCE, b"late", b"v")])
    assert rig.value(b"late") is None


def test_a_copy_is_kept_apart(tmp_path: Path) -> None:
    """Records of a standby partition go into its store and move its own offset, not the recovery's."""
    rig = Rig(tmp_path, "rocksdb")
    rig.recovery.active_tps.clear()
    rig.recovery.add_standby(cast("Any", rig.app.tables)["sessions"], rig.tp)
    rig.take([Row(0, b"a", b"1"), Row(1, b"a", b"2")])
    assert rig.value(b"a") == b"2"
    assert rig.recovery.standby_offsets[rig.tp] == 1
    assert not rig.recovery.active_remaining()


def test_a_store_that_takes_nothing_ends_the_worker_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not passed over: what would be missing from the table could be answered from."""
    rig = Rig(tmp_path, "rocksdb")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rig.recovery.tp_to_table[rig.tp], "apply_changelog_batch", full)
    with pytest.raises(SetupError, match=r"No space left on device.*worker\.data_dir"):
        rig.take([Row(0, b"a", b"1")])
    assert rig.recovery.active_offsets[rig.tp] is None
