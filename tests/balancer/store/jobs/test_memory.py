"""Besides the contract (`test_port`): a lease that was lost to nobody is still its holder's."""

from arriero.balancer.store.jobs.memory import MemoryJobs
from arriero.balancer.store.jobs.records import Chunk, ChunkResults


async def test_a_late_commit_counts_if_nobody_else_has_the_chunk() -> None:
    store = MemoryJobs()
    await store.add_chunks("b", [Chunk(number=0, offset=0, num_bytes=1, first_line=1, num_lines=1)])
    await store.lease_chunk("b", "me", 0.0, 1.0)
    results = ChunkResults(
        key="k", num_output_bytes=1, num_error_bytes=0, num_completed=1, num_failed=0
    )
    assert await store.commit_chunk("b", 0, "me", results)
    assert await store.lease_chunk("b", "you", 9.0, 10.0) is None
    assert not await store.commit_chunk("b", 7, "me", results)
