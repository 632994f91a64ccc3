"""Where engines run on small and large machines, and what quota and affinity leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.runtime.cpus import Cores, Place, available_cores, place
from schemas.errors import ConfigError
from schemas.settings import Model


def _files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_two_cores_are_one_for_the_engine_and_one_for_the_worker() -> None:
    """The default on the smallest useful machine."""
    placement = place([Model()], Cores((0, 1)))
    assert placement.engines == ((Place(1, (1,)),),)
    assert placement.worker == (0,)


def test_replicas_take_their_own_cores_and_leave_one() -> None:
    """Three replicas on four cores, none shared, one for the worker."""
    placement = place([Model(replicas=3)], Cores((0, 1, 2, 3)))
    assert [one.cpus for one in placement.engines[0]] == [(1,), (2,), (3,)]
    assert placement.worker == (0,)


def test_more_engines_than_cores_share_but_never_the_workers() -> None:
    """The worker's core stays its own when engines are too many."""
    placement = place([Model(), Model(name="fallback", replicas=2)], Cores((4, 5)))
    assert {one.cpus for places in placement.engines for one in places} == {(5,)}
    assert placement.worker == (4,)


def test_a_fallback_has_a_core_of_its_own_where_there_are_three() -> None:
    """So that the main model's restart takes nothing from the one that answers meanwhile; on two cores they share one, and the worker keeps its own."""
    placement = place([Model(), Model(name="fallback")], Cores((0, 1, 2)))
    assert [places[0].cpus for places in placement.engines] == [(1,), (2,)]
    assert placement.worker == (0,)
    placement = place([Model(), Model(name="fallback")], Cores((0, 1)))
    assert [places[0].cpus for places in placement.engines] == [(1,), (1,)]
    assert placement.worker == (0,)


def test_a_replacement_loads_on_the_workers_core_where_engines_share_theirs() -> None:
    """Its load takes seconds of a core that the other model needs whole; an engine with a core of its own, or more threads than one, loads at home."""
    two = [Model(), Model(name="fallback")]
    assert [places[0].loads_on for places in place(two, Cores((0, 1))).engines] == [(0, 1), (0, 1)]
    assert place(two, Cores((3,))).engines[0][0] == Place(1, None, (3,))
    assert place([Model(replicas=2)], Cores((0, 1)), worker=(0,)).engines[0][1] == Place(1, (1,), (0, 1))
    assert place([Model(cpus=(1, 2), threads=2), Model(name="b", cpus=(1,))], Cores((0, 1, 2))).engines == ((Place(2, (1, 2)),), (Place(1, (1,), (0, 1)),))
    for alone in (place([Model()], Cores((0, 1))), place(two, Cores((0, 1, 2))), place(two, Cores(tuple(range(64))))):
        assert all(one.loads_on is None for places in alone.engines for one in places)
    assert place([Model(), Model(name="script", engine="scripted")], Cores((0, 1))).engines[0][0].loads_on is None


def test_threads_take_as_many_cores() -> None:
    """Two threads are two cores, and not more than there are."""
    placement = place([Model(threads=2)], Cores((0, 1, 2, 3)))
    assert placement.engines[0][0] == Place(2, (1, 2))
    assert placement.worker == (0, 3)
    assert place([Model(threads=999)], Cores((0, 1))).engines[0][0] == Place(1, (1,))


def test_large_machine_is_not_pinned() -> None:
    """Above four cores the kernel places; one thread stays one thread."""
    placement = place([Model()], Cores(tuple(range(64))))
    assert placement.engines == ((Place(1, None),),)
    assert placement.worker is None


def test_quota_bounds_threads_on_a_large_host() -> None:
    """A container with two cores' quota on a host with 64 gets two threads at most, and at least one."""
    assert place([Model(threads=16)], Cores(tuple(range(64)), quota=2.0)).engines[0][0].threads == 2
    assert place([Model(threads=16)], Cores(tuple(range(64)), quota=0.5)).engines[0][0].threads == 1


def test_single_core_is_shared() -> None:
    """There is nothing to divide, so nothing is pinned."""
    placement = place([Model()], Cores((0,)))
    assert placement.engines[0][0] == Place(1, None)
    assert placement.worker is None


def test_named_cores_are_kept() -> None:
    """Settings win, for engines and for the worker."""
    placement = place([Model(cpus=(0,))], Cores((0, 1)), worker=(1,))
    assert placement.engines[0][0] == Place(1, (0,))
    assert placement.worker == (1,)
    assert place([Model(cpus=(0, 1))], Cores((0, 1))).worker is None


@pytest.mark.parametrize("cpus", [(7,), ()])
def test_cores_that_may_not_be_used_are_refused(cpus: tuple[int, ...]) -> None:
    """The text names the key and what there is."""
    with pytest.raises(ConfigError, match=r"models\[1\].cpus: .*0, 1"):
        place([Model(), Model(name="b", cpus=cpus)], Cores((0, 1)))
    with pytest.raises(ConfigError, match=r"worker.cpus"):
        place([Model()], Cores((0, 1)), worker=cpus)


def test_quota_of_version_2_is_the_smallest_on_the_way_up(tmp_path: Path) -> None:
    """A limit on a parent binds its children."""
    root = _files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/cpu.max": "max 100000",
        },
    )
    assert available_cores(root).quota == 1.5


def test_quota_of_version_1_is_read_at_the_mounts_top(tmp_path: Path) -> None:
    """In a container the path of the host's cgroup is not mounted."""
    root = _files(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert available_cores(root).quota == 2.0


def test_no_quota_leaves_affinity(tmp_path: Path) -> None:
    """Minus one, `max` and no cgroup at all mean no limit."""
    root = _files(tmp_path, {"proc/self/cgroup": "1:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"})
    assert available_cores(root).count == len(available_cores().ids)
    assert available_cores(tmp_path / "nothing").quota == float("inf")


def test_a_script_takes_no_core() -> None:
    """A scripted engine only waits: neither it nor the worker is bound to a core for it."""
    placement = place([Model(engine="scripted")], Cores((0, 1)))
    assert placement.engines == ((Place(1, None),),)
    assert placement.worker is None
