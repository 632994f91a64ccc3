"""Models of the Hugging Face hub, from a hub on loopback: pinned, checked, resumed."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agents.models.pull import pull_model
from agents.models.registry import models_folder, resolve_model
from schemas.errors import SetupError, UsageError
from tests.agents.models.tiny import FILES

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = "openvino_model.bin"


class Hub(ThreadingHTTPServer):
    """Serves one repository, ORG/Tiny-ov, as the hub does: information, redirect-free files, ranges."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {**FILES, "README.md": b"readme", "pytorch_model.bin": b"never fetched"}
        self.announced: dict[str, bytes] = {}
        self.cut_at: int | None = None
        self.requests: list[tuple[str, str, str | None]] = []

    def information(self) -> dict[str, object]:
        """What the hub says of the repository, with sizes and digests."""
        siblings: list[dict[str, object]] = []
        for name, content in {**self.files, **self.announced}.items():
            entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": _git_digest(content)}
            if name.endswith(".bin"):
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        return {
            "id": "ORG/Tiny-ov",
            "sha": COMMIT,
            "private": False,
            "tags": ["openvino", "license:apache-2.0"],
            "downloads": 0,
            "likes": 0,
            "siblings": siblings,
        }


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path, self.headers.get("Range")))
        name = path.removeprefix(f"/ORG/Tiny-ov/resolve/{COMMIT}/")
        if path in ("/api/models/ORG/Tiny-ov", f"/api/models/ORG/Tiny-ov/revision/{COMMIT[:7]}"):
            self._send(200, json.dumps(self.server.information()).encode(), {"Content-Type": "application/json"}, body=body)
        elif name in self.server.files:
            self._send_file(self.server.files[name], body=body)
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body=body)

    def _send_file(self, content: bytes, *, body: bool) -> None:
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, content[start:], headers, body=body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            cut = self.server.cut_at
            self.wfile.write(content if cut is None or len(content) <= cut else content[:cut])
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
        pass


def _git_digest(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


@pytest.fixture
def hub(home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback that HF_ENDPOINT points to, and an empty home."""
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()
        thread.join()


def test_repository_is_fetched_pinned_and_found(hub: Hub) -> None:
    """A pull keeps the model's own files, the commit it resolved and the licence; the name and the `hf:` form both find it."""
    said: list[tuple[str, int, int]] = []
    pulled = pull_model("hf:ORG/Tiny-ov", progress=lambda step, done, total: said.append((step, done, total)))
    assert pulled.manifest.source == f"hf:ORG/Tiny-ov@{COMMIT}"
    assert pulled.manifest.license == "apache-2.0"
    assert set(pulled.manifest.files) == set(FILES)
    assert sorted(path.name for path in pulled.folder.iterdir()) == sorted([*FILES, "answerby.json"])
    assert resolve_model("Tiny-ov").version == resolve_model("hf:ORG/Tiny-ov").version == hashlib.sha256(FILES[LARGE]).hexdigest()[:12]
    total = sum(map(len, FILES.values()))
    assert ("downloading hf:ORG/Tiny-ov", total, total) in said
    assert [path.name for path in models_folder().iterdir() if path.is_dir()] == ["Tiny-ov"]


def test_whole_model_needs_no_hub(hub: Hub) -> None:
    """A second pull asks nobody; with --force it asks again."""
    pull_model("hf:ORG/Tiny-ov")
    hub.requests.clear()
    assert not pull_model("hf:ORG/Tiny-ov").made
    assert hub.requests == []
    assert pull_model("hf:ORG/Tiny-ov", force=True).made
    assert hub.requests


def test_revision_is_asked_for(hub: Hub) -> None:
    """`@revision` reaches the hub, and another revision does not pass for the one that is here."""
    assert pull_model(f"hf:ORG/Tiny-ov@{COMMIT[:7]}").made
    assert not pull_model(f"hf:ORG/Tiny-ov@{COMMIT[:7]}").made
    with pytest.raises(UsageError, match="--force"):
        pull_model("hf:ORG/Tiny-ov@other")
    assert hub.requests[0][1].endswith(f"/revision/{COMMIT[:7]}")


def test_broken_download_goes_on_where_it_stopped(hub: Hub) -> None:
    """A connection that ends in the middle is one line of error; the next pull fetches the rest only."""
    hub.files[LARGE], hub.cut_at = bytes(24 << 20), 15 << 20
    with pytest.raises(SetupError, match="pull again; it goes on where it stopped") as caught:
        pull_model("hf:ORG/Tiny-ov")
    assert "\n" not in str(caught.value)
    with pytest.raises(SetupError, match="is not here"):
        resolve_model("hf:ORG/Tiny-ov")
    hub.cut_at, before = None, len(hub.requests)
    pull_model("hf:ORG/Tiny-ov")
    ranges = [span for method, path, span in hub.requests[before:] if method == "GET" and path.endswith(LARGE)]
    assert len(ranges) == 1
    assert ranges[0] is not None
    assert 0 < int(ranges[0].removeprefix("bytes=").partition("-")[0]) <= 15 << 20
    assert resolve_model("Tiny-ov").weights_bytes == 24 << 20


@pytest.mark.parametrize("name", [LARGE, "config.json"])
def test_other_bytes_than_announced_are_refused(hub: Hub, name: str) -> None:
    """A mirror that serves other bytes of the same size, large file or small, leaves nothing behind."""
    hub.announced[name] = b"x" * len(FILES[name])
    with pytest.raises(SetupError, match=f"{name} .* is not what the hub announced"):
        pull_model("hf:ORG/Tiny-ov")
    assert [path for path in models_folder().iterdir() if path.is_dir()] == []


def test_repository_without_openvino_files_is_refused(hub: Hub) -> None:
    """A repository of another format is refused before anything is fetched."""
    del hub.files["openvino_tokenizer.xml"]
    with pytest.raises(SetupError, match=r"has no openvino_tokenizer\.xml"):
        pull_model("hf:ORG/Tiny-ov")
    assert len(hub.requests) == 1


def test_unknown_repository_is_one_line(hub: Hub) -> None:
    """What is not on the hub is told with its status and what to check."""
    with pytest.raises(SetupError, match=r"hf:ORG/Other is not on the hub or not open to you \(HTTP 404\)") as caught:
        pull_model("hf:ORG/Other")
    assert "\n" not in str(caught.value)


def test_hub_that_is_down_is_one_line(home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub at all is told as such, not as a traceback."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SetupError, match="cannot be fetched") as caught:
        pull_model("hf:ORG/Tiny-ov")
    assert "\n" not in str(caught.value)
