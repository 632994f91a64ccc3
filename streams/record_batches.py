"""Reads record batches whose header names are not UTF-8: clients in C and Go may send any bytes, and aiokafka's reader would stop at the record for good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

MAGIC_WITH_HEADERS = 2
"""Older batch formats have no headers."""


class TolerantRecords(_MemoryRecordsPy):  # type: ignore[misc]  # marked final, for type checkers only
    """aiokafka's view of a fetched piece of log, with batches that survive any header name."""

    def next_batch(self, *args: Any) -> Any:
        """The next batch, or None."""
        piece = self._next_slice
        batch = super().next_batch(*args)
        if batch is None or piece is None or batch.magic < MAGIC_WITH_HEADERS:
            return batch
        return _TolerantBatch(batch, piece)


class _TolerantBatch:
    """Iterates at full speed, and starts again with the patient reader where a header name cannot be decoded."""

    def __init__(self, batch: Any, piece: memoryview) -> None:
        self._batch = batch
        self._piece = piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        """The mark of a transaction's end is read so: one record, without headers."""
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        given = 0
        try:
            for record in self._batch:
                yield record
                given += 1
        except UnicodeDecodeError:
            for index, record in enumerate(_read_patiently(self._piece)):
                if index >= given:
                    yield record


def _read_patiently(piece: memoryview) -> Iterator[Any]:
    batch: Any = _DefaultRecordBatchPy(piece)
    batch._maybe_uncompress()
    batch._buffer = _LenientBuffer(batch._buffer)
    yield from batch


class _LenientBuffer(bytearray):
    r"""Bytes whose slices decode without failing: `\xff` in a name is shown as those four characters."""

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        found = super().__getitem__(index)
        return _LenientName(found) if isinstance(index, slice) else found


class _LenientName(bytearray):
    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # the caller asks for strict
        return super().decode(encoding, "backslashreplace")


def install_tolerant_reader() -> None:
    """Make every consumer of this process read so; idempotent."""
    fetcher.MemoryRecords = TolerantRecords
