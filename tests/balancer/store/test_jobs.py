"""The contract of what keeps files and batches."""

import asyncio
from dataclasses import replace

import pytest

from arriero.balancer.store.job_records import (
    Chunk,
    ChunkResults,
    ChunkSums,
    FileTotals,
    SavedBatch,
    SavedFile,
)
from arriero.balancer.store.jobs import BatchConflict, JobStore
from tests.balancer.store.conftest import OpenStore


@pytest.fixture
async def store(opened: OpenStore) -> JobStore:
    return (await opened()).jobs


def file(number: int, owner: str | None = None, **more: object) -> SavedFile:
    made = SavedFile(
        id=f"file-{number}",
        owner=owner,
        name="in.jsonl",
        purpose="batch",
        num_bytes=number,
        created_at=float(number // 2),  # two at a time
    )
    return replace(made, **more)


def batch(number: int, revision: int = 1, **more: object) -> SavedBatch:
    made = SavedBatch(
        id=f"batch_{number}",
        owner="ann",
        created_at=float(number),
        revision=revision,
        is_open=True,
        document="{}",
    )
    return replace(made, **more)


def chunk(number: int) -> Chunk:
    return Chunk(number=number, offset=number * 10, num_bytes=10, first_line=number, num_lines=2)


def results(key: str) -> ChunkResults:
    return ChunkResults(
        key=key, num_output_bytes=2**33, num_error_bytes=5, num_completed=1, num_failed=1
    )


async def test_files_are_kept(store: JobStore) -> None:
    kept = file(1, "ann", name="ñ.jsonl", expires_at=5.5)
    await store.add_file(kept)
    assert await store.file("file-1") == kept
    assert await store.file("file-2") is None
    assert await store.file_totals() == {"ann": FileTotals(num_files=1, num_bytes=1)}
    assert await store.forget_file("file-1")
    assert not await store.forget_file("file-1")
    assert await store.file_totals() == {}


async def test_which_files_are_known(store: JobStore) -> None:
    await store.add_file(file(1))
    await store.add_file(file(2, "ann"))
    assert await store.known_files(["file-2", "file-3", "file-1"]) == {"file-1", "file-2"}
    assert await store.known_files([]) == set()


@pytest.mark.parametrize("owner", ["ann", None])
async def test_files_are_listed_by_owner_a_page_at_a_time(
    store: JobStore, owner: str | None
) -> None:
    for number in range(6):
        await store.add_file(file(number, owner))
    await store.add_file(file(9, "someone else"))
    await store.add_file(file(8, owner, purpose="batch_output"))

    async def ids(order: str, after: str | None = None) -> list[str]:
        page = await store.files(owner, purpose="batch", after=after, limit=4, order=order)
        return [each.id for each in page]

    assert await ids("asc") == ["file-0", "file-1", "file-2", "file-3"]
    assert await ids("asc", "file-3") == ["file-4", "file-5"]
    assert await ids("desc") == ["file-5", "file-4", "file-3", "file-2"]
    assert await ids("desc", "file-2") == ["file-1", "file-0"]


async def test_files_whose_time_has_come(store: JobStore) -> None:
    for number in range(4):
        await store.add_file(file(number, expires_at=float(number)))
    await store.add_file(file(5))
    assert {each.id for each in await store.expired_files(2.0, 10)} == {
        "file-0",
        "file-1",
        "file-2",
    }
    assert len(await store.expired_files(2.0, 2)) == 2


async def test_a_batch_is_changed_by_one_at_a_time(store: JobStore) -> None:
    await store.save_batch(batch(1))
    await store.save_batch(batch(1, 2, document='{"a": 1}'), [file(1), file(2)])
    assert await store.batch("batch_1") == batch(1, 2, document='{"a": 1}')
    assert sum(each.num_files for each in (await store.file_totals()).values()) == 2
    with pytest.raises(BatchConflict):
        await store.save_batch(batch(1, 2), [file(3)])
    assert await store.file("file-3") is None, "all or nothing"
    assert await store.batch("batch_2") is None


async def test_batches_are_listed(store: JobStore) -> None:
    for number in range(5):
        await store.save_batch(batch(number, is_open=number % 2 == 0))
    await store.save_batch(batch(7, owner=None))
    assert [each.id for each in await store.batches("ann", after=None, limit=2)] == [
        *("batch_4", "batch_3")
    ]
    page = await store.batches("ann", after="batch_3", limit=9)
    assert [each.id for each in page] == ["batch_2", "batch_1", "batch_0"]
    assert [each.id for each in await store.open_batches()] == [
        *("batch_0", "batch_2", "batch_4", "batch_7")
    ]
    everybodys = [each.id for each in await store.all_batches(5)]
    assert everybodys == ["batch_7", "batch_4", "batch_2", "batch_0", "batch_3"]


async def test_old_batches_are_forgotten_with_their_chunks(store: JobStore) -> None:
    for number in range(4):
        await store.save_batch(batch(number, is_open=number == 0))
        await store.add_chunks(f"batch_{number}", [chunk(0)])
    assert sorted(await store.forget_ended(1)) == ["batch_1", "batch_2"]
    assert await store.forget_ended(1) == []
    assert (await store.sums("batch_1")).num_chunks == 0
    assert (await store.sums("batch_0")).num_chunks == 1


async def test_whoever_has_most_batches_loses_the_oldest(store: JobStore) -> None:
    await store.save_batch(batch(0, owner=None, is_open=False))
    for number in range(1, 6):
        await store.save_batch(batch(number, is_open=number == 5))
    assert await store.num_open_batches() == {"ann": 1}
    assert sorted(await store.forget_ended(3)) == ["batch_1", "batch_2"]
    assert await store.batch("batch_0") is not None


async def test_one_has_a_batch_until_its_lease_is_over(store: JobStore) -> None:
    for number in (1, 2):
        await store.save_batch(batch(number))
    await store.save_batch(batch(3, is_open=False))
    assert await store.claim_batch("batch_1", "me", 0.0, 10.0) == batch(1)
    assert await store.claim_batch("batch_1", "me", 1.0, 11.0) == batch(1)
    assert await store.claim_batch("batch_1", "you", 10.9, 20.0) is None
    assert await store.extend_leases("me", 15.0) == {"batch_1"}
    assert await store.claim_batch("batch_1", "you", 11.0, 20.0) is None
    assert await store.claim_batch("batch_1", "you", 15.0, 20.0) == batch(1)
    assert await store.extend_leases("me", 30.0) == set(), "another has it"
    await store.release("me")
    assert await store.claim_batch("batch_1", "me", 16.0, 30.0) is None
    await store.release("you")
    assert await store.claim_batch("batch_1", "me", 16.0, 30.0) == batch(1)
    assert await store.claim_batch("batch_3", "me", 0.0, 10.0) is None, "it is over"
    assert await store.claim_batch("batch_9", "me", 0.0, 10.0) is None


async def test_only_one_of_many_gets_a_batch(store: JobStore) -> None:
    await store.save_batch(batch(1))
    claims = (store.claim_batch("batch_1", f"r{number}", 0.0, 10.0) for number in range(10))
    assert sum(each is not None for each in await asyncio.gather(*claims)) == 1


async def test_chunks_come_in_their_order_and_who_has_the_batch_writes_results(
    store: JobStore,
) -> None:
    await store.save_batch(batch(1))
    await store.add_chunks("batch_1", [chunk(number) for number in range(3)])
    await store.claim_batch("batch_1", "me", 0.0, 10.0)
    assert await store.next_chunk("batch_1", -1) == chunk(0)
    assert await store.commit_chunk("batch_1", 1, "me", results("one"))
    assert await store.commit_chunk("batch_1", 1, "me", results("one")), "as after a lost answer"
    assert not await store.commit_chunk("batch_1", 1, "me", results("another"))
    assert await store.next_chunk("batch_1", 0) == chunk(2), "the one before has results"
    assert await store.next_chunk("batch_1", 2) is None
    await store.claim_batch("batch_1", "you", 10.0, 20.0)
    assert not await store.commit_chunk("batch_1", 0, "me", results("mine")), "too late"
    assert await store.commit_chunk("batch_1", 0, "you", results("yours"))
    assert not await store.commit_chunk("batch_1", 7, "you", results("yours"))
    assert await store.done_chunks("batch_1", after=-1, limit=1) == [(0, results("yours"))]
    assert await store.done_chunks("batch_1", after=0, limit=9) == [(1, results("one"))]
    assert await store.sums("batch_1") == ChunkSums(
        num_chunks=3, num_done=2, num_completed=2, num_failed=2
    )
    await store.forget_chunks("batch_1")
    assert await store.sums("batch_1") == ChunkSums()


async def test_it_is_there_after_a_restart(opened_sql: OpenStore) -> None:
    store = (await opened_sql()).jobs
    file = SavedFile(
        id="f", owner=None, name="a\0\ud800", purpose="batch", num_bytes=2**40, created_at=1.5
    )
    batch = SavedBatch(
        id="b", owner="ann", created_at=1.5, revision=1, is_open=True, document="ñ 🦙"
    )
    await store.add_file(file)
    await store.save_batch(batch)
    again = (await opened_sql()).jobs
    found = await again.file("f")
    assert found is not None
    assert found.name.startswith("a\N{REPLACEMENT CHARACTER}")
    assert found.num_bytes == 2**40
    assert await again.batch("b") == batch


async def test_ids_that_nothing_can_have_are_not_found(opened_sql: OpenStore) -> None:
    store = (await opened_sql()).jobs
    strange = "a\0\ud800"
    assert await store.file(strange) is None
    assert await store.batch(strange) is None
    assert await store.batches(None, after=strange, limit=1) == []
    assert await store.files(None, purpose=strange, after=strange, limit=1, order="asc") == []
