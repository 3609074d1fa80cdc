"""Results while a chunk runs: there after a kill, each once."""

import resource
from pathlib import Path

import pytest

from arriero.balancer.jobs import results as finalizing
from arriero.balancer.jobs.blobs import BlobsAway, LocalBlobs, results_blob
from arriero.balancer.jobs.files_place import WorkPlace
from arriero.balancer.jobs.results import RESULTS_KEPT, Spool, finalize
from arriero.balancer.store.job_records import Chunk, ChunkResults
from tests.balancer.jobs.builders import House, created, request_line
from tests.balancer.jobs.contract import read, write


def test_results_are_stored_in_the_order_of_the_lines(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "blobs")
    chunk = Spool(tmp_path).open("b", 0)
    chunk.add(3, b'{"a": "3 3"}\n', is_error=False)
    chunk.add(1, b"1\n", is_error=False)
    chunk.add(2, b"bad\n", is_error=True)
    results = chunk.store(blobs, "batches/b/0")
    assert read(blobs, results_blob("batches/b/0", is_error=False)) == b'1\n{"a": "3 3"}\n'
    assert read(blobs, results_blob("batches/b/0", is_error=True)) == b"bad\n"
    assert (results.num_output_bytes, results.num_error_bytes) == (15, 4)
    assert (results.num_completed, results.num_failed) == (2, 1)
    chunk.delete()
    assert Spool(tmp_path).open("b", 0).is_error == {}


@pytest.mark.parametrize("torn", [b"", b"O", b"O 3 {", b'O 3 {"x": 1}'])
def test_a_torn_record_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    chunk = Spool(tmp_path).open("b", 0)
    chunk.add(1, b"one\n", is_error=False)
    chunk.add(2, b"two\n", is_error=True)
    [path] = (tmp_path / "chunks" / "b").iterdir()
    path.write_bytes(path.read_bytes() + torn)
    again = Spool(tmp_path).open("b", 0)
    assert again.is_error == {1: False, 2: True}
    again.add(3, b"three\n", is_error=False)
    blobs = LocalBlobs(tmp_path / "blobs")
    last = Spool(tmp_path).open("b", 0)
    last.store(blobs, "k")
    assert read(blobs, results_blob("k", is_error=False)) == b"one\nthree\n"


def test_a_record_that_did_not_fit_is_not_the_beginning_of_the_next(tmp_path: Path) -> None:
    chunk = Spool(tmp_path).open("b", 0)
    chunk.add(1, b"one\n", is_error=False)
    [path] = (tmp_path / "chunks" / "b").iterdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
    try:
        with pytest.raises(BlobsAway):
            chunk.add(2, b"two\n", is_error=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    chunk.add(3, b"three\n", is_error=False)
    assert chunk.is_error == Spool(tmp_path).open("b", 0).is_error == {1: False, 3: False}


def test_nothing_is_stored_where_there_is_nothing(tmp_path: Path) -> None:
    results = Spool(tmp_path).open("b", 0).store(LocalBlobs(tmp_path / "blobs"), "k")
    assert (results.num_output_bytes, results.num_completed) == (0, 0)
    assert not (tmp_path / "blobs").exists()


def test_what_a_batch_left_is_known_and_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert spool.batches() == set()
    for batch in ("a", "b"):
        spool.open(batch, 0).add(1, b"x\n", is_error=False)
    assert spool.batches() == {"a", "b"}
    spool.forget("a")
    assert spool.open("a", 0).is_error == {}
    assert spool.open("b", 0).is_error == {1: False}
    spool.forget("b")
    assert spool.open("b", 0).is_error == {}


pytestmark = pytest.mark.usefixtures("closes_stores")


@pytest.fixture
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalizing, "CHUNKS_AT_ONCE", 2)


@pytest.mark.usefixtures("_small_pages")
async def test_all_chunks_in_their_order(tmp_path: Path) -> None:
    house = House(tmp_path)
    blobs = LocalBlobs(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        id = (await created(jobs, request_line(1))).id
        await house.store.claim_batch(id, "me", 0.0, 1e9)
        for number in range(5):
            row = Chunk(number=number, offset=0, num_bytes=1, first_line=1, num_lines=2)
            await house.store.add_chunks(id, [row])
            key = f"batches/{id}/{number}"
            write(blobs, results_blob(key, is_error=False), b"o%d\n" % number)
            results = ChunkResults(
                key=key,
                num_output_bytes=3,
                num_error_bytes=0,
                num_completed=1,
                num_failed=0,
            )
            if number == 3:
                write(blobs, results_blob(key, is_error=True), b"e3\n")
                results = ChunkResults(
                    key=key, num_output_bytes=3, num_error_bytes=3, num_completed=1, num_failed=1
                )
            await house.store.commit_chunk(id, number, "me", results)
        write(blobs, f"files/file-{id.removeprefix('batch_')}-output", b"of a try that was killed")
        batch = await jobs.batches.change(id, lambda b: b.begun(6, 1.0).finalizing(2.0))
        last = await finalize(batch, house.store, blobs, jobs.batches, 3.0)
        assert (last.status, last.num_completed, last.num_failed) == ("completed", 5, 1)
        assert read(blobs, f"files/{last.output_file}") == b"o0\no1\no2\no3\no4\n"
        assert read(blobs, f"files/{last.error_file}") == b"e3\n"
        file = await house.store.file(last.output_file or "")
        assert file is not None
        assert (file.num_bytes, file.purpose) == (15, "batch_output")
        assert file.expires_at == 3.0 + RESULTS_KEPT
