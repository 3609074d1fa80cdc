"""What the folder remembers of a file beside it: how to resume its download, what was verified."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`validator` is the ETag or date under which a partial file was begun; `total` its full size.

    `sha256` was computed over the whole file, which had `size` bytes then.
    """

    validator: str | None = None
    total: int | None = None
    sha256: str | None = None
    size: int | None = None


_record: TypeAdapter[Record] = TypeAdapter(Record)


def read_record(path: Path) -> Record:
    """The record in `path`; an empty one where there is none, or one torn by a crash."""
    try:
        return _record.validate_json(path.read_bytes(), strict=True)
    except (FileNotFoundError, ValidationError):
        return Record()


def write_record(path: Path, record: Record) -> None:
    """Raises `OSError`."""
    path.write_text(json.dumps(asdict(record)))
