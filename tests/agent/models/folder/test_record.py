"""What the folder remembers of a file."""

from pathlib import Path

import pytest

from arriero.agent.models.folder.record import Record, read_record, write_record


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = Record(validator='"v1"', total=7, sha256="a" * 64, size=7)
    write_record(tmp_path / "record", record)
    assert read_record(tmp_path / "record") == record


@pytest.mark.parametrize("torn", [b"", b'{"total": 1', b"[]", b'{"total": "x"}', b"\xff"])
def test_a_torn_record_says_nothing(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "record").write_bytes(torn)
    assert read_record(tmp_path / "record") == Record()


def test_without_a_record_nothing_is_known(tmp_path: Path) -> None:
    assert read_record(tmp_path / "record") == Record()
