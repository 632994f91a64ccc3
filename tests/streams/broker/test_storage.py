"""Tests for `streams.broker.storage`: one broker a directory, and only directories of its own kind."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from schemas.errors import SetupError
from streams.broker.storage import claim_data_dir, format_storage, storage_error


def test_second_claim_is_refused(tmp_path: Path) -> None:
    """Two brokers never write one directory; after the first is gone the second may."""
    first = claim_data_dir(tmp_path / "data")
    with pytest.raises(SetupError, match="another broker is running"):
        claim_data_dir(tmp_path / "data")
    first.release()
    claim_data_dir(tmp_path / "data").release()
    assert (tmp_path / "data").is_dir()


def test_stranger_directory_is_refused(tmp_path: Path) -> None:
    """A directory with other files in it is not written to."""
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SetupError, match=r"holds other things \(thesis\.tex\)"):
        claim_data_dir(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(("marker", "said"), [('{"kafka": "9.9.9"}', "Kafka 9.9.9"), ("{", "an unknown version")])
def test_other_versions_directory_is_refused(tmp_path: Path, marker: str, said: str) -> None:
    """Data of another Kafka is left alone, and the claim on it given up."""
    (tmp_path / "answerby-broker.json").write_text(marker)
    for _ in range(2):
        with pytest.raises(SetupError, match=f"written by {'Kafka ' if 'Kafka' not in said else ''}{said}"):
            claim_data_dir(tmp_path)


def test_ephemeral_directory_goes_with_the_broker(home: Path) -> None:
    """Nothing of an ephemeral broker stays, and living ones keep theirs."""
    first, second = claim_data_dir(None), claim_data_dir(None)
    assert first.path != second.path
    second.release()
    assert first.path.is_dir()
    assert not second.path.exists()
    first.release()
    assert [path for path in (home / "ephemeral").iterdir() if path.is_dir()] == []


def test_what_a_killed_broker_left_is_swept(home: Path) -> None:
    """An ephemeral directory that nobody claims any more is removed by the next broker."""
    left = home / "ephemeral" / "broker-old"
    (left / "logs").mkdir(parents=True)
    claim_data_dir(None).release()
    assert not left.exists()


def test_storage_is_formatted_once_with_its_own_identity(home: Path, tmp_path: Path) -> None:
    """The slow tool runs once per installation; each directory gets another cluster id and keeps it."""
    runs: list[Path] = []

    def make_checkpoint(target: Path) -> None:
        runs.append(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"features")

    texts = []
    for name in ("one", "two", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        format_storage(tmp_path / name, make_checkpoint)
        assert (tmp_path / name / "logs" / "bootstrap.checkpoint").read_bytes() == b"features"
        texts.append((tmp_path / name / "logs" / "meta.properties").read_text())
    assert len(runs) == 1
    assert runs[0].is_relative_to(home)
    assert texts[0] == texts[2] != texts[1]


def test_full_disk_is_said_as_such(tmp_path: Path) -> None:
    """ENOSPC becomes a line that names the way out."""
    assert "no space left" in str(storage_error(OSError(errno.ENOSPC, "No space left on device"), tmp_path))
    assert "mend it" in str(storage_error(PermissionError(errno.EACCES, "Permission denied"), tmp_path))
