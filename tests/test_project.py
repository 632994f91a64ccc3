"""The project's own files: a lock that can be trusted, and a set-up that fails in one line."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)( ; .+)? \\$", re.MULTILINE)


def wanted() -> set[str]:
    """Names of everything that pyproject.toml asks for."""
    groups = [item for group in PROJECT["dependency-groups"].values() for item in group if isinstance(item, str)]
    return {re.split(r"[<>=!~ \[;]", item)[0].lower() for item in [*PROJECT["project"]["dependencies"], *groups]}


def test_the_lock_pins_everything_that_is_asked_for() -> None:
    """No dependency was added to pyproject.toml without `make lock`."""
    assert wanted() - {match[1] for match in PINNED.finditer(LOCK)} == set()


def test_every_pin_has_hashes_and_no_address() -> None:
    """Packages are known by their content, wherever they are fetched from."""
    pins = [match.start() for match in PINNED.finditer(LOCK)]
    assert len(pins) > len(wanted())
    for start, end in zip(pins, [*pins[1:], len(LOCK)], strict=True):
        assert "--hash=sha256:" in LOCK[start:end]
    assert "://" not in LOCK
    assert not re.search(r"^\s*-", re.sub(r"^    --hash=.*$", "", LOCK, flags=re.MULTILINE), re.MULTILINE), "no options such as --index-url"


@pytest.mark.parametrize("python", ["/nonexistent/python", "/bin/false"])
def test_a_python_that_will_not_do_is_one_line(python: str, tmp_path: Path) -> None:
    """Set-up with an unusable PYTHON: exit 1, one line with the way out, and nothing made."""
    copy = tmp_path / "clone"
    (copy / ".ci").mkdir(parents=True)
    for name in (".ci/environment", "requirements.lock", "pyproject.toml"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    command = ["bash", str(copy / ".ci/environment"), ".venv", "locked"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHON": python})
    assert done.returncode == 1
    assert done.stderr == f"error: PYTHON={python} is not a CPython 3.11 or later: name one that is, or leave PYTHON out\n"
    assert not (copy / ".venv").exists()


def test_names_of_commands_and_packages_are_the_contract_s() -> None:
    """The distribution and its command are called answerby, and it is not to be uploaded by accident."""
    assert PROJECT["project"]["name"] == "answerby"
    assert PROJECT["project"]["scripts"] == {"answerby": "agents.cli.main:main"}
    assert "Private :: Do Not Upload" in PROJECT["project"]["classifiers"]
