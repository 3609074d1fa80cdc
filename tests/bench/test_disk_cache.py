"""Which files the benchmark of the disk cache looks at."""

from pathlib import Path

from bench.disk_cache import blocks, forget


def test_blocks_alone_count(tmp_path: Path) -> None:
    (tmp_path / "a.block").write_bytes(b"123")
    (tmp_path / "b.part").write_bytes(b"45")
    assert blocks(tmp_path) == [tmp_path / "a.block"]
    assert forget(tmp_path) == 3
