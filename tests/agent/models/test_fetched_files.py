"""Model, projector and adapters are fetched together, or none of them stays leased."""

from dataclasses import replace

import pytest

from arriero.agent.models.fetched_files import fetch_all
from arriero.agent.models.port import FetchError
from arriero.shared.models.assignments import Assignment, Download, WishedAdapter
from tests.agent.supervision.fakes import FakeFiles

PLAIN = Assignment(name="m", source="file:///m.gguf")
FULL = replace(
    PLAIN,
    projector="file:///p.gguf",
    adapters=(
        WishedAdapter(name="b", source="file:///b.gguf"),
        WishedAdapter(name="a", source="file:///a.gguf", scale=0.5),
    ),
)


async def test_a_model_alone() -> None:
    files = FakeFiles()
    fetched = await fetch_all(files, PLAIN, lambda _: None)
    assert (fetched.projector_path, fetched.adapter_paths) == (None, ())
    assert fetched.bytes == files.size


async def test_all_files_in_order_with_one_lease() -> None:
    files, seen = FakeFiles(), list[Download]()
    fetched = await fetch_all(files, FULL, seen.append)
    sources = ["file:///m.gguf", "file:///p.gguf", "file:///b.gguf", "file:///a.gguf"]
    assert [each.file for each in seen] == sources
    assert fetched.projector_path == str(files.path)
    assert len(fetched.adapter_paths) == 2
    assert fetched.bytes == 4 * files.size
    assert not any(each.is_released for each in files.leases.values())
    fetched.release()
    assert all(each.is_released for each in files.leases.values())


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("file:///m.gguf", "file:///m.gguf is bad"),
        ("file:///p.gguf", "`projector`: file:///p.gguf is bad"),
        ("file:///a.gguf", "adapter `a`: file:///a.gguf is bad"),
    ],
)
async def test_what_cannot_be_had_is_named_and_nothing_stays_leased(source: str, told: str) -> None:
    files = FakeFiles()
    files.failures[source] = "not_found"
    with pytest.raises(FetchError) as caught:
        await fetch_all(files, FULL, lambda _: None)
    assert (caught.value.code, caught.value.message) == ("not_found", told)
    assert caught.value.hint == "mend it"
    assert all(each.is_released for each in files.leases.values())
