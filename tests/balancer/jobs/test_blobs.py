import asyncio
import os
import threading
from pathlib import Path

import pytest

from arriero.balancer.jobs.blobs import NUM_THREADS, BlobsAway, LocalBlobs, on_thread
from tests.agent.fakes import soon
from tests.balancer.jobs.contract import check_blobs, read, write


async def test_what_hangs_holds_up_nothing_but_its_kind() -> None:
    """A storage that is silent: all threads wait for it, and one more call for a thread."""
    may_go_on = threading.Event()
    calls = [asyncio.create_task(on_thread(may_go_on.wait)) for _ in range(NUM_THREADS)]
    late = asyncio.create_task(on_thread(threading.current_thread))
    try:
        assert await soon(asyncio.to_thread(lambda: "other work")) == "other work"
        assert not late.done()
    finally:
        may_go_on.set()
    assert await soon(asyncio.gather(*calls)) == [True] * NUM_THREADS
    assert (await soon(late)).name.startswith("files")


async def test_what_goes_wrong_there_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await on_thread(int, "seven")
    assert await on_thread(int, "11", base=2) == 3


def test_the_contract(tmp_path: Path) -> None:
    check_blobs(LocalBlobs(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "nothing is left"


def test_nobody_sees_what_is_not_finished(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    write(blobs, "files/a", b"old")
    writer = blobs.create("files/a")
    writer.write(b"new")
    assert read(blobs, "files/a") == b"old"
    writer.commit()
    assert read(blobs, "files/a") == b"new"


def test_what_was_never_finished_is_swept(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    writers = [blobs.create(name) for name in ("files/old", "files/new")]
    [old] = tmp_path.glob("files/old*")
    os.utime(old, (100.0, 100.0))
    blobs.delete_unfinished(200.0)
    assert [path.name.split(".")[0] for path in tmp_path.glob("files/*")] == ["new"]
    for writer in writers:
        writer.abort()


def test_what_the_system_says_is_told(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("not a folder")
    with pytest.raises(BlobsAway, match=r"exists|directory"):
        LocalBlobs(tmp_path).create("files/a")
