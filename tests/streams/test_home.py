"""Tests for `streams.home`: a download is whole and right, or an error that says what to do."""

from __future__ import annotations

import errno
import hashlib
import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemas.errors import SetupError
from streams.home import answerby_home, fetch_file, file_lock, is_kept

CONTENT = b"a broker in a file\n" * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Mirror(http.server.ThreadingHTTPServer):
    """A loopback server: path to content, and what was asked for; `answer` may change a reply's status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {"/file.jar": CONTENT}
        self.asked: list[str] = []
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        """The server's root."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Mirror)
        server.asked.append(self.path)
        status = server.statuses.pop(0) if server.statuses else 200
        content = server.files.get(self.path) if status == 200 else b"no"
        self.send_response(404 if content is None else status)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        pass


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    """A running loopback mirror."""
    server = Mirror()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`$ANSWERBY_HOME` wins, and `~/.cache/answerby` stands in for it."""
    monkeypatch.setenv("ANSWERBY_HOME", str(tmp_path))
    assert answerby_home() == tmp_path
    monkeypatch.setenv("ANSWERBY_HOME", "")
    assert answerby_home() == Path.home() / ".cache" / "answerby"


def test_fetched_file_is_kept_and_not_asked_for_again(mirror: Mirror, tmp_path: Path) -> None:
    """A verified file costs one request in its life, and progress ends at its size."""
    seen: list[tuple[int, int]] = []
    target = fetch_file(f"{mirror.url}/file.jar", tmp_path / "deep" / "file.jar", SHA256, len(CONTENT), lambda done, total: seen.append((done, total)))
    fetch_file(f"{mirror.url}/file.jar", target, SHA256, len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert mirror.asked == ["/file.jar"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: b"X" + data[1:], lambda data: b""], ids=["truncated", "changed", "empty"])
def test_damaged_kept_file_is_fetched_again(mirror: Mirror, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """A file that is not what it was does not pass for the one that was verified."""
    target = fetch_file(f"{mirror.url}/file.jar", tmp_path / "file.jar", SHA256, len(CONTENT))
    target.write_bytes(damage(CONTENT))
    assert not is_kept(target, SHA256, len(CONTENT))
    fetch_file(f"{mirror.url}/file.jar", target, SHA256, len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert len(mirror.asked) == 2


def test_file_copied_by_hand_needs_no_network(tmp_path: Path) -> None:
    """A machine without network works once the right file lies in its place."""
    target = tmp_path / "file.jar"
    target.write_bytes(CONTENT)
    assert fetch_file("http://127.0.0.1:1/file.jar", target, SHA256, len(CONTENT)) == target


def test_wrong_content_is_refused_and_leaves_nothing(mirror: Mirror, tmp_path: Path) -> None:
    """A mirror's wrong file is named with both digests and never reaches the target's name."""
    mirror.files["/file.jar"] = b"Y" + CONTENT[1:]
    with pytest.raises(SetupError, match=rf"expected sha256 {SHA256}, got [0-9a-f]{{64}}.*check the mirror"):
        fetch_file(f"{mirror.url}/file.jar", tmp_path / "file.jar", SHA256, len(CONTENT))
    assert not (tmp_path / "file.jar").exists()
    assert not list((tmp_path / ".fetch").glob("*.part"))


def test_endless_content_is_cut(mirror: Mirror, tmp_path: Path) -> None:
    """A reply longer than the file may be does not fill the disk."""
    mirror.files["/file.jar"] = CONTENT + CONTENT
    with pytest.raises(SetupError, match="got more"):
        fetch_file(f"{mirror.url}/file.jar", tmp_path / "file.jar", SHA256, len(CONTENT))


def test_missing_file_is_said_at_once(mirror: Mirror, tmp_path: Path) -> None:
    """HTTP 404 is not tried again."""
    with pytest.raises(SetupError, match="HTTP 404"):
        fetch_file(f"{mirror.url}/other.jar", tmp_path / "file.jar", SHA256, len(CONTENT))
    assert len(mirror.asked) == 1


def test_server_error_is_tried_again(mirror: Mirror, tmp_path: Path) -> None:
    """A mirror that fails twice and then answers is no error."""
    mirror.statuses = [503, 502]
    target = fetch_file(f"{mirror.url}/file.jar", tmp_path / "file.jar", SHA256, len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert len(mirror.asked) == 3


def test_no_network_is_one_line(tmp_path: Path) -> None:
    """Without a server the error is one line that names the address."""
    with pytest.raises(SetupError, match=r"http://127\.0\.0\.1:1/file\.jar: cannot be fetched") as caught:
        fetch_file("http://127.0.0.1:1/file.jar", tmp_path / "file.jar", SHA256, len(CONTENT))
    assert "\n" not in str(caught.value)


def test_full_disk_is_said_as_such(mirror: Mirror, tmp_path: Path) -> None:
    """No space left names ANSWERBY_HOME as the way out."""

    def fill(done: int, total: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SetupError, match=r"no space left.*ANSWERBY_HOME"):
        fetch_file(f"{mirror.url}/file.jar", tmp_path / "file.jar", SHA256, len(CONTENT), fill)
    assert not list((tmp_path / ".fetch").glob("*.part"))


def test_unwritable_home_is_said_as_such(mirror: Mirror, tmp_path: Path) -> None:
    """A home below a plain file is an error of the set-up, not a traceback."""
    (tmp_path / "home").write_text("a file")
    with pytest.raises(SetupError, match="cannot be written"):
        fetch_file(f"{mirror.url}/file.jar", tmp_path / "home" / "file.jar", SHA256, len(CONTENT))


def test_two_processes_fetch_once(mirror: Mirror, tmp_path: Path) -> None:
    """Processes that need the same file at once both get it, from one download."""
    code = "import sys, pathlib; from streams.home import fetch_file; fetch_file(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))"
    command = [sys.executable, "-c", code, f"{mirror.url}/file.jar", str(tmp_path / "file.jar"), SHA256, str(len(CONTENT))]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (tmp_path / "file.jar").read_bytes() == CONTENT
    assert mirror.asked == ["/file.jar"]


def test_leftover_of_a_killed_download_is_removed(mirror: Mirror, tmp_path: Path) -> None:
    """What a killed download left neither stays nor counts as the file."""
    (tmp_path / ".fetch").mkdir()
    left = tmp_path / ".fetch" / "file.jar.x.part"
    left.write_bytes(CONTENT[:10])
    fetch_file(f"{mirror.url}/file.jar", tmp_path / "file.jar", SHA256, len(CONTENT))
    assert not left.exists()


def test_held_lock_is_a_bounded_wait(tmp_path: Path) -> None:
    """Who waits for a lock that is never given up is told so."""
    with file_lock(tmp_path / "lock", 1, "busy"), pytest.raises(SetupError, match=r"^busy"), file_lock(tmp_path / "lock", 0.05, "busy"):
        pass
