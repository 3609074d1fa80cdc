"""Results are put together; done again, it comes to the same."""

from pathlib import Path

import pytest

from arriero.balancer.jobs import finalizing
from arriero.balancer.jobs.blobs.local import LocalBlobs
from arriero.balancer.jobs.finalizing import RESULTS_KEPT, finalize
from arriero.balancer.jobs.spool import blob_name
from arriero.balancer.jobs.work_place import WorkPlace
from arriero.balancer.store.job_records import Chunk, ChunkResults
from tests.balancer.jobs.blobs.contract import read, write
from tests.balancer.jobs.builders import House, created, request_line

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
        for number in range(5):
            row = Chunk(number=number, offset=0, num_bytes=1, first_line=1, num_lines=2)
            await house.store.add_chunks(id, [row])
            await house.store.lease_chunk(id, "me", 0.0, 1e9)
            key = f"batches/{id}/{number}"
            write(blobs, blob_name(key, is_error=False), b"o%d\n" % number)
            results = ChunkResults(
                key=key,
                num_output_bytes=3,
                num_error_bytes=0,
                num_completed=1,
                num_failed=0,
            )
            if number == 3:
                write(blobs, blob_name(key, is_error=True), b"e3\n")
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
