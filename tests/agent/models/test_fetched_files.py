"""Model, companions and adapters are fetched together, or none of them stays leased."""

from dataclasses import replace

import pytest

from arriero.agent.models.fetched_files import adapters_on_host, fetch_adapters, fetch_all
from arriero.agent.models.port import FetchError
from arriero.shared.models.assignments import Assignment, Download, EngineOptions, WishedAdapter
from tests.agent.supervision.fakes import FakeFiles

PLAIN = Assignment(name="m", source="file:///m.gguf")
FULL = replace(
    PLAIN,
    projector="file:///p.gguf",
    engine=EngineOptions(draft_model="file:///d.gguf"),
    adapters=(
        WishedAdapter(name="b", source="file:///b.gguf"),
        WishedAdapter(name="a", source="file:///a.gguf", scale=0.5),
    ),
)


async def test_a_model_alone() -> None:
    files = FakeFiles()
    fetched = await fetch_all(files, PLAIN, lambda _: None)
    assert (fetched.projector_path, fetched.draft_path, fetched.adapters) == (None, None, ())
    assert fetched.bytes == files.size


async def test_all_files_in_order_with_a_lease_of_the_model_and_one_of_each_adapter() -> None:
    files, seen = FakeFiles(), list[Download]()
    fetched = await fetch_all(files, FULL, seen.append)
    names = ["m", "p", "d", "b", "a"]
    sources = [f"file:///{name}.gguf" for name in names]
    assert [each.file for each in seen] == sources
    assert fetched.projector_path == str(files.path)
    assert fetched.draft_path == str(files.path)
    assert [each.source for each in adapters_on_host(FULL.adapters or (), fetched.adapters)] == (
        sources[3:]
    )
    assert fetched.bytes == 2 * files.size
    assert not any(each.is_released for each in files.leases.values())
    fetched.release()
    assert [each.is_released for each in files.leases.values()] == [True] * 3 + [False] * 2
    fetched.release_all()
    assert all(each.is_released for each in files.leases.values())


async def test_adapters_alone() -> None:
    files = FakeFiles()
    (one,) = await fetch_adapters(files, (FULL.adapters or ())[:1], lambda _: None)
    assert list(files.leases) == ["file:///b.gguf"]
    one.lease.release()
    files.failures["file:///a.gguf"] = "not_found"
    with pytest.raises(FetchError, match="adapter `a`") as raised:
        await fetch_adapters(files, FULL.adapters or (), lambda _: None)
    assert raised.value.issue.adapter == "a"
    assert files.leases["file:///b.gguf"].is_released


async def test_a_model_does_without_adapters_that_cannot_be_had() -> None:
    files = FakeFiles()
    files.failures["file:///b.gguf"] = "not_found"
    fetched = await fetch_all(files, FULL, lambda _: None)
    assert [each.name for each in fetched.wished] == ["a"]
    assert len(fetched.adapters) == 1
    assert [each.message for each in fetched.failures] == ["adapter `b`: file:///b.gguf is bad"]
    assert [each.issue.adapter for each in fetched.failures] == ["b"]
    fetched.release_all()
    assert all(each.is_released for each in files.leases.values())


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("file:///m.gguf", "file:///m.gguf is bad"),
        ("file:///p.gguf", "`projector`: file:///p.gguf is bad"),
        ("file:///d.gguf", "`engine.draft_model`: file:///d.gguf is bad"),
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
