"""Records whose header names no UTF-8 decoder takes."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.record_batches import TolerantRecords


def _batch_with_broken_name() -> bytes:
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=9999)
    builder.append(0, timestamp=1, key=b"k0", value=b"v0", headers=[("good", b"x")])
    builder.append(1, timestamp=1, key=None, value=b"v1", headers=[("zzzz", None)])
    builder.append(2, timestamp=1, key=b"k2", value=None, headers=[])
    raw = bytearray(builder.build())
    at = raw.index(b"zzzz")
    raw[at : at + 4] = b"\xff\xfea\xfe"
    return bytes(raw)


def test_undecodable_header_name_is_spelled_out() -> None:
    r"""Neighbours are read once and unchanged, and the name arrives as `\xff...` instead of stopping the partition."""
    records = TolerantRecords(_batch_with_broken_name())
    read = [(item.offset, item.key, item.value, tuple(item.headers)) for item in records.next_batch()]
    assert read == [(0, b"k0", b"v0", (("good", b"x"),)), (1, None, b"v1", (("\\xff\\xfea\\xfe", None),)), (2, b"k2", None, ())]
    assert not records.has_next()


def test_the_end_of_a_transaction_can_be_read() -> None:
    """A consumer that leaves out aborted records takes the mark from its batch with `next`."""
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=0, is_transactional=1, producer_id=7, producer_epoch=0, base_sequence=0, batch_size=999)
    builder.append(0, timestamp=1, key=b"\x00\x00\x00\x00", value=b"\x00\x00\x00\x00\x00\x00", headers=[])
    batch = TolerantRecords(bytes(builder.build())).next_batch()
    assert batch.is_transactional
    assert batch.producer_id == 7
    assert next(batch).key == b"\x00\x00\x00\x00"
