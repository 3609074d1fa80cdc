"""An input is cut into chunks that together are all of it, and what cannot run is told."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arriero.balancer.jobs import inputs as indexing
from arriero.balancer.jobs.files_place import WorkPlace
from arriero.balancer.jobs.inputs import (
    BatchStopped,
    CustomIds,
    Index,
    check_input,
    index,
    read_chunk,
)
from arriero.balancer.store.job_records import Chunk
from tests.balancer.jobs.builders import House, created, request_line

URL = "/v1/completions"


def text(number: int, prompt: str = "x") -> bytes:
    value = {"custom_id": f"r{number}", "method": "POST", "url": URL, "body": {"prompt": prompt}}
    return json.dumps(value).encode()


def indexed(data: bytes, folder: Path) -> tuple[Index, list[Chunk]]:
    chunks: list[Chunk] = []
    found = index(io.BytesIO(data), URL, folder / "ids", chunks.extend, pause=lambda _: None)
    return found, chunks


def numbers(data: bytes, chunk: Chunk) -> list[int]:
    file = io.BytesIO(data)
    file.seek(chunk.offset)
    return [line.number for line in read_chunk(file, chunk, URL)]


@given(
    lines=st.lists(st.sampled_from([b"", b"  ", b"bad", b"good", b"long"]), max_size=40),
    ends=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_with_text_is_in_one_chunk(
    lines: list[bytes], ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "CHUNK_LINES", 4)
    monkeypatch.setattr(indexing, "CHUNK_BYTES", 600)
    words = {b"good": text, b"long": lambda number: text(number, "y" * 300)}
    rows = [words[line](n) if line in words else line for n, line in enumerate(lines, 1)]
    data = b"\n".join(rows) + b"\n" * ends
    found, chunks = indexed(data, tmp_path)
    wanted = [number for number, row in enumerate(rows, 1) if row.strip()]
    assert [number for chunk in chunks for number in numbers(data, chunk)] == wanted
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.num_lines for chunk in chunks] == [len(numbers(data, e)) for e in chunks]
    assert found.num_lines == len(wanted)


def test_a_bad_line_is_no_fault_of_the_batch(tmp_path: Path) -> None:
    found, [chunk] = indexed(text(1) + b"\nbad\n" + text(3), tmp_path)
    assert found == Index(3, [])
    file = io.BytesIO(text(1) + b"\nbad\n" + text(3))
    problems = [line.problem is not None for line in read_chunk(file, chunk, URL)]
    assert problems == [False, True, False]


def test_nothing_but_bad_lines_is(tmp_path: Path) -> None:
    found, _ = indexed(b"bad\nworse\n", tmp_path)
    assert [(fault.code, fault.line) for fault in found.faults] == [
        ("invalid_request", 1),
        ("invalid_request", 2),
    ]


@pytest.mark.parametrize("data", [b"", b"\n\n  \n"])
def test_so_is_nothing(data: bytes, tmp_path: Path) -> None:
    found, chunks = indexed(data, tmp_path)
    assert [fault.code for fault in found.faults] == ["empty_file"]
    assert chunks == []


def test_and_an_id_that_is_there_twice(tmp_path: Path) -> None:
    found, _ = indexed(b"\n".join([text(1), text(2), text(1)]), tmp_path)
    assert [(fault.code, fault.line) for fault in found.faults] == [("duplicate_custom_id", 3)]


def test_and_too_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_LINES", 2)
    found, _ = indexed(b"\n".join(text(n) for n in range(3)), tmp_path)
    assert [fault.code for fault in found.faults] == ["too_many_lines"]
    assert indexed(b"\n".join(text(n) for n in range(2)), tmp_path)[0].faults == []


def test_a_line_that_is_too_long_is_told_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "MAX_LINE", 200)
    data = text(1) + b"\n" + text(2, "z" * 1000) + b"\n" + text(3)
    found, [chunk] = indexed(data, tmp_path)
    assert found.num_lines == 3
    assert numbers(data, chunk) == [1, 2, 3]


def test_others_get_the_interpreter_in_between(tmp_path: Path) -> None:
    pauses: list[float] = []
    data = b"\n".join(text(n) for n in range(200))
    index(io.BytesIO(data), URL, tmp_path / "ids", lambda _: None, pause=pauses.append)
    assert len(pauses) == 200 // indexing.LINES_AT_ONCE


def test_the_later_lines_are_found(tmp_path: Path) -> None:
    with CustomIds(tmp_path / "ids") as ids:
        for number in range(1, 5001):
            ids.add(f"r{number % 4990}", number)
        assert ids.repeated(100) == list(range(4991, 5001))
    assert not (tmp_path / "ids").exists()


def test_so_many_are_told(tmp_path: Path) -> None:
    with CustomIds(tmp_path / "ids") as ids:
        for number in range(1000):
            ids.add("same", number)
        assert ids.repeated(3) == [1, 2, 3]


def test_what_an_earlier_check_left_does_not_count(tmp_path: Path) -> None:
    ids = CustomIds(tmp_path / "ids")
    ids.__enter__().add("a", 1)  # and then it was killed
    with CustomIds(tmp_path / "ids") as again:
        again.add("a", 1)
        assert again.repeated(9) == []
    ids.__exit__(None, None, None)


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
        with pytest.raises(BatchStopped):
            await check_input(batch, tools, lambda: False)
        await jobs.files.delete(batch.input_file, None)
        found = await check_input(batch, tools, lambda: True)
        assert [fault.code for fault in found.faults] == ["file_not_found"]
