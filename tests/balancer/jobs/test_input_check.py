"""An input is checked off the event loop; its chunks are in the store then."""

from pathlib import Path

import pytest

from arriero.balancer.jobs.input_check import NotWanted, check_input
from arriero.balancer.jobs.work_place import WorkPlace
from tests.balancer.jobs.builders import House, created, request_line

pytestmark = pytest.mark.usefixtures("closes_stores")


async def test_chunks_are_stored_and_former_ones_forgotten(tmp_path: Path) -> None:
    house = House(tmp_path)
    with WorkPlace.take(tmp_path / "work") as work:
        jobs = house.jobs(work)
        batch = await created(jobs, b"".join(map(request_line, range(600))))
        tools = jobs._runner._tools
        for _ in range(2):  # as after a kill
            found = await check_input(batch, tools, lambda: True)
            assert (found.num_lines, found.faults) == (600, [])
        assert (await house.store.sums(batch.id)).num_chunks == 3
        with pytest.raises(NotWanted):
            await check_input(batch, tools, lambda: False)
        await jobs.files.delete(batch.input_file, None)
        found = await check_input(batch, tools, lambda: True)
        assert [fault.code for fault in found.faults] == ["file_not_found"]
