"""Rules that follow their files: a right change is taken whole, a wrong one changes nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agents.rules.courteous import SWITCH_S
from agents.rules.live import LiveRules
from schemas.errors import ConfigError
from schemas.settings_ladder import Rules
from tests.support import run

Told = list[tuple[bool, int, str | None]]


def text(*answers: str) -> str:
    """A file of rules for `x`, the first of which answers."""
    return "".join(f'[[rules]]\nname = "r{number}"\nmatch.any = ["x"]\nanswer.en = "{answer}"\n' for number, answer in enumerate(answers))


def replace(file: Path, content: str) -> None:
    """As editors and deployments do: write beside it, then rename."""
    beside = file.with_suffix(".new")
    beside.write_text(content, encoding="utf-8")
    beside.replace(file)


def overwrite(file: Path, content: str, times_ns: tuple[int, int] | None = None) -> None:
    """In place, with the times that it is to have."""
    file.write_text(content, encoding="utf-8")
    if times_ns is not None:
        os.utime(file, ns=times_ns)


def times_of(file: Path) -> tuple[int, int]:
    """Access and change, in nanoseconds."""
    status = file.stat()
    return status.st_atime_ns, status.st_mtime_ns


def remove(file: Path) -> None:
    """The file is gone."""
    file.unlink()


def said(live: LiveRules) -> str | None:
    """What is answered now."""
    found = live.current.match("x")
    return found.text if found else None


def looked(
    tmp_path: Path, steps: Callable[[LiveRules, Path, Told], Awaitable[None]], *, reload_s: float = 3600, on_change: Callable[[], None] = lambda: None
) -> None:
    """Run `steps` with rules that follow a file and a list of what was told."""
    file = tmp_path / "rules.toml"
    file.write_text(text("old"), encoding="utf-8")
    told: Told = []

    def tell(ok: bool, rules: int, problem: str | None) -> None:
        told.append((ok, rules, problem))
        on_change()

    async def going() -> None:
        live = LiveRules(Rules(files=(str(file),), reload_s=reload_s), on_reload=tell)
        await live.start()
        try:
            await steps(live, file, told)
        finally:
            await live.stop()

    run(going())


def test_change_is_taken_when_looked_at(tmp_path: Path) -> None:
    """New rules are in force whole, and told once."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        before = live.current
        assert not await live.look()
        replace(file, text("new", "other"))
        assert await live.look()
        assert said(live) == "new"
        assert before.match("x") is not None  # who holds the old set goes on with it
        assert not await live.look()
        assert told == [(True, 2, None)]

    looked(tmp_path, steps)


@pytest.mark.parametrize("wrong", ["[[rules]\n", text("{"), "", text("a").replace("match.any", "match.ayn")])
def test_wrong_change_keeps_the_old_rules(tmp_path: Path, wrong: str) -> None:
    """A wrong file is told once with its line and changes nothing; the next right one is taken."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        replace(file, wrong)
        assert await live.look()
        assert not await live.look()
        assert said(live) == "old"
        ((ok, rules, problem),) = told
        assert not ok
        assert rules == 1
        assert problem is not None
        assert problem.startswith(f"{file}:")
        replace(file, text("mended"))
        assert await live.look()
        assert said(live) == "mended"
        assert told[1:] == [(True, 1, None)]

    looked(tmp_path, steps)


def test_vanished_file_keeps_the_old_rules(tmp_path: Path) -> None:
    """A file that is gone is a wrong change, not an end of the rules; back as it was, the rules are as they were."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        remove(file)
        assert await live.look()
        assert said(live) == "old"
        assert told[0][:2] == (False, 1)
        overwrite(file, text("back"))
        assert await live.look()
        assert said(live) == "back"

    looked(tmp_path, steps)


def test_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    """Equal time, size and place do not hide other content while the file is young."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        overwrite(file, text("new"), times_of(file))
        assert await live.look()
        assert said(live) == "new"
        assert len(told) == 1

    looked(tmp_path, steps)


def test_touched_file_is_no_change(tmp_path: Path) -> None:
    """Another time alone compiles nothing and tells nobody."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        before = live.current
        os.utime(file, ns=(1, 1))
        assert not await live.look()
        assert live.current is before
        assert told == []

    looked(tmp_path, steps)


def test_files_are_looked_at_by_themselves(tmp_path: Path) -> None:
    """Between start and stop a change is found without being asked for; afterwards it is not."""
    changed = asyncio.Event()

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        await live.start()  # a second start is the first one
        replace(file, text("new"))
        async with asyncio.timeout(30):
            await changed.wait()
        assert said(live) == "new"
        await live.stop()
        await live.stop()
        replace(file, text("newer"))
        assert said(live) == "new"
        assert told == [(True, 1, None)]

    looked(tmp_path, steps, reload_s=0.1, on_change=changed.set)


def test_surprise_in_one_look_does_not_end_later_ones(tmp_path: Path) -> None:
    """Who is told of a change may fail; the next change is told all the same."""
    failed, changed = asyncio.Event(), asyncio.Event()

    def fail_once() -> None:
        if not failed.is_set():
            failed.set()
            msg = "nobody thought of this"
            raise LookupError(msg)
        changed.set()

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        replace(file, text("new"))
        async with asyncio.timeout(30):
            await failed.wait()
            replace(file, text("newer"))
            await changed.wait()
        assert said(live) == "newer"

    looked(tmp_path, steps, reload_s=0.1, on_change=fail_once)


def test_unreadable_number_is_a_wrong_change(tmp_path: Path) -> None:
    """A number that Python cannot read is told as any mistake, and the next right file is taken."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        replace(file, text("a") + f"priority = {'9' * 5000}\n")
        assert await live.look()
        assert [ok for ok, _, _ in told] == [False]
        replace(file, text("mended"))
        assert await live.look()
        assert said(live) == "mended"

    looked(tmp_path, steps)


def test_pipe_in_place_of_a_file_is_a_wrong_change(tmp_path: Path) -> None:
    """A look at it ends, is told once, and the next right file is taken."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        remove(file)
        os.mkfifo(file)
        assert await live.look()
        assert not await live.look()
        assert told[0][0] is False
        assert "not a regular file" in str(told[0][2])
        replace(file, text("mended"))
        assert await live.look()
        assert said(live) == "mended"

    looked(tmp_path, steps)


def test_stop_ends_a_look(tmp_path: Path) -> None:
    """The reading that is under way ends with the stop and changes nothing; after a later start the change is found."""

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        replace(file, text(*["new"] * 5000))
        looking = asyncio.create_task(live.look())
        await asyncio.sleep(0)  # the thread has begun
        await live.stop()
        assert not await looking
        assert told == []
        assert said(live) == "old"
        await live.start()
        assert await live.look()
        assert said(live) == "new"

    looked(tmp_path, steps)


def test_reading_lets_the_loop_in(tmp_path: Path) -> None:
    """While a look reads, the interpreter changes hands quickly; afterwards as before."""
    before = sys.getswitchinterval()

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        replace(file, text(*["new"] * 2000))
        looking = asyncio.create_task(live.look())
        seen = []
        while not looking.done():
            seen.append(sys.getswitchinterval())
            await asyncio.sleep(0)
        assert min(seen) <= SWITCH_S * 1.01
        assert said(live) == "new"
        assert told == [(True, 2000, None)]

    looked(tmp_path, steps)
    assert sys.getswitchinterval() == before


def test_old_rules_are_let_go_beside_the_loop(tmp_path: Path) -> None:
    """Nobody keeps the old set, and what frees it is not the loop's thread."""
    freed_in: list[str] = []

    async def steps(live: LiveRules, file: Path, told: Told) -> None:
        weakref.finalize(live.current, lambda: freed_in.append(threading.current_thread().name))
        replace(file, text("new"))
        assert await live.look()
        assert told == [(True, 1, None)]
        assert freed_in == ["rules-let-go"]

    looked(tmp_path, steps)


HUNG = """
import asyncio, threading
from agents.rules.apart import run_apart
async def main():
    task = asyncio.create_task(run_apart("hung", threading.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
print("ended")
"""


def test_hung_look_does_not_keep_the_process() -> None:
    """A disk that never answers holds one thread, and not the end of the worker."""
    done = subprocess.run([sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_start_with_wrong_rules_is_refused(tmp_path: Path) -> None:
    """There are no old rules to keep yet."""
    (tmp_path / "rules.toml").write_text("[[rules]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rules\.toml:1: not TOML"):
        LiveRules(Rules(files=(str(tmp_path / "rules.toml"),)))
