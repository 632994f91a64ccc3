"""The tracker against every order of delivery and release that a consumer can produce."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.offsets import Known, OffsetTracker, SeekBack, Taken


def test_takes_in_order_from_the_start() -> None:
    """The committed offset is the first one taken, and what lies below is dropped."""
    tracker = OffsetTracker(5)
    assert tracker.take(4) == Known("before")
    assert tracker.take(5) == Taken()
    assert tracker.take(6) == Taken()
    assert tracker.expected == 7


def test_commit_never_passes_a_running_event() -> None:
    """With offset 0 still running, nothing is committable however much after it is released (R04)."""
    tracker = OffsetTracker(0)
    for offset in range(10):
        tracker.take(offset)
    for offset in range(1, 10):
        tracker.release(offset)
    assert tracker.committable() is None
    tracker.release(0)
    assert tracker.committable() == 10


def test_committed_offset_is_not_committed_again() -> None:
    """An offset the broker knows is not offered once more."""
    tracker = OffsetTracker(0)
    tracker.take(0)
    tracker.release(0)
    assert tracker.committable() == 1
    tracker.note_committed(1)
    assert tracker.committable() is None


def test_jump_forward_is_read_again_not_processed() -> None:
    """Records that delivery skipped are asked for; what came too early is dropped meanwhile."""
    tracker = OffsetTracker(0)
    tracker.take(0)
    assert tracker.take(7) == SeekBack(1)
    assert tracker.take(8) == Known("hole")
    assert [tracker.take(offset) for offset in (1, 2, 3)] == [Taken(), Taken(), Taken()]
    assert tracker.expected == 4


def test_real_hole_is_believed_at_the_second_read() -> None:
    """A compacted or transactional log has holes: the same later record twice proves one."""
    tracker = OffsetTracker(0)
    tracker.take(0)
    assert tracker.take(5) == SeekBack(1)
    assert tracker.take(5) == Taken()
    tracker.release(0)
    tracker.release(5)
    assert tracker.committable() == 6


def test_smaller_hole_found_by_the_re_read_is_checked_too() -> None:
    """A re-read that starts below the first hole's end is proof of nothing yet."""
    tracker = OffsetTracker(0)
    assert tracker.take(9) == SeekBack(0)
    assert tracker.take(4) == SeekBack(0)
    assert tracker.take(4) == Taken()


class _Log:
    """A partition with real holes, read by a consumer that loses what it has fetched at any moment."""

    def __init__(self, offsets: list[int]) -> None:
        self.offsets = offsets
        self.position = 0

    def read(self, count: int) -> list[int]:
        found = [offset for offset in self.offsets if offset >= self.position][:count]
        if found:
            self.position = found[-1] + 1
        return found


@given(
    st.sets(st.integers(0, 60), min_size=1, max_size=40).map(sorted),
    st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=60),
)
def test_every_record_is_taken_once_whatever_delivery_drops(offsets: list[int], reads: list[tuple[int, bool]]) -> None:
    """However often fetched records are dropped, each real one is taken exactly once and in order, and lag ends at 0."""
    log, tracker, taken = _Log(offsets), OffsetTracker(0), list[int]()
    patient = [(4, False)] * 200  # after the trouble the consumer behaves, and everything must have come through

    for count, dropped in [*reads, *patient]:
        for offset in log.read(count):
            if dropped:
                continue
            match tracker.take(offset):
                case Taken():
                    taken.append(offset)
                    tracker.release(offset)
                case SeekBack(target):
                    log.position = target
                    break
                case Known():
                    pass
        if not log.read(0) and log.position > tracker.expected and not any(offset >= log.position for offset in offsets):
            log.position = tracker.expected  # the worker's look-out for stalled partitions
    assert taken == offsets
    assert tracker.committable() == offsets[-1] + 1
