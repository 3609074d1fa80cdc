from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.gguf.header import read_header
from arriero.agent.models.model_file import AdapterOnHost, ModelFile
from arriero.agent.models.port import FetchedModel, FetchError, OnHeader, OnProgress, RemoteModel
from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.model_fetch import (
    Brought,
    Unfit,
    adapters_on_host,
    bring_adapters,
    fetch_adapters,
    fetch_all,
    fetch_model,
)
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assignment, DesiredAdapter, Device, Download
from arriero.shared.models.engine_options import EngineOptions
from demo.conversations import DRAFT
from tests.agent.supervision.fakes import FakeFiles

SETTINGS = AgentSettings(name="box")
A = Assignment(name="a", source="file:///a.gguf")


async def fetch(
    files: FakeFiles,
    assignment: Assignment = A,
    settings: AgentSettings = SETTINGS,
    devices: tuple[Device, ...] = (),
) -> object:
    seen: list[Download] = []
    return await fetch_model(files, settings, assignment, on_progress=seen.append, devices=devices)


async def needed(settings: AgentSettings) -> int:
    outcome = await fetch(FakeFiles(), settings=settings)
    assert isinstance(outcome, Brought)
    assert outcome.file.needed is not None
    return int(outcome.file.needed)


async def test_the_file_and_its_lease() -> None:
    files = FakeFiles()
    outcome = await fetch(files)
    assert isinstance(outcome, Brought)
    file, ((leased, lease),) = outcome.file, outcome.leases
    assert leased == file and file.path == str(files.path)
    assert not files.leases[A.source].is_released
    lease.release()
    assert files.leases[A.source].is_released
    assert file.needed is not None and file.needed > files.size
    assert file.info is not None
    assert (file.info.name, file.info.architecture) == ("a", "llama")


async def test_more_slots_need_more() -> None:
    files = FakeFiles()
    needs = []
    for slots in (1, 8):
        outcome = await fetch(files, replace(A, slots=slots))
        assert isinstance(outcome, Brought)
        needs.append(outcome.file.needed)
    cells = 7 * SETTINGS.load_options.slot_tokens
    assert needs[1] - needs[0] >= cells * 2 * 2, "at least a key and a value in f16"


async def test_what_it_would_need_with_a_shorter_context() -> None:
    settings = AgentSettings(name="box", context_size=2048, slots=3)
    outcome = await fetch(FakeFiles(), settings=settings)
    assert isinstance(outcome, Brought)
    shorter = dict(outcome.file.shorter)
    assert [*shorter] == [1024, 512]
    for context_size, size in shorter.items():
        assert size == await needed(AgentSettings(name="box", context_size=context_size, slots=3))
    fixed = AgentSettings(name="box", context_size=2048, kv_cells=8192)
    outcome = await fetch(FakeFiles(), settings=fixed)
    assert isinstance(outcome, Brought) and outcome.file.shorter == ()


async def test_prefixes_in_host_memory_need_theirs() -> None:
    without = await needed(AgentSettings(name="box", host_cache=0))
    assert await needed(SETTINGS) == without + SETTINGS.host_cache


async def test_a_draft_model_needs_its_own() -> None:
    draft = {"name": "box", "slots": 2, "context_size": 512, "draft_model": DRAFT}
    more = await needed(AgentSettings.model_validate(draft))
    without = await needed(AgentSettings.model_validate({**draft, "draft_model": None}))
    cells = 1024 * 2 * (32 + 32) * 2
    assert more - without > cells + DRAFT.stat().st_size * 0.7


async def test_a_draft_model_that_cannot_be_read() -> None:
    for path in ("/nowhere/draft.gguf", str(Path(__file__))):
        files = FakeFiles()
        assignment = replace(A, engine=EngineOptions(draft_model=path))
        outcome = await fetch(files, assignment)
        assert isinstance(outcome, Issue)
        assert outcome.code == "invalid_options"
        assert f"`draft_model`: {path} cannot be read" in outcome.message
        assert files.leases[A.source].is_released


PROJECTOR = FakeFiles().path.stat().st_size


async def test_what_is_served_beside_it_comes_along_and_needs_its_own() -> None:
    files = FakeFiles()
    adapter = DesiredAdapter(name="b", source="file:///b.gguf")
    beside = replace(A, projector="file:///p.gguf", adapters=(adapter,))
    outcome = await fetch(files, beside)
    assert isinstance(outcome, Brought)
    file, ((alone, lease), (leased_adapter, adapter_lease)) = outcome.file, outcome.leases
    on_host = AdapterOnHost(adapter.source, str(files.path), files.size)
    assert (file.projector, file.adapters) == (str(files.path), (on_host,))
    assert file.needed == await needed(SETTINGS) + PROJECTOR + files.size
    assert file.info is not None and file.info.size_bytes == files.size
    assert (alone, leased_adapter) == (file.alone, on_host)
    lease.release()
    assert [each.is_released for each in files.leases.values()] == [True, True, False]
    adapter_lease.release()
    assert files.leases[adapter.source].is_released


async def test_a_model_comes_without_adapters_that_cannot_be_had() -> None:
    files = FakeFiles()
    gone, here = (
        DesiredAdapter(name=one, source=f"file:///{one}.gguf") for one in ("gone", "here")
    )
    files.failures[gone.source] = "not_found"
    outcome = await fetch(files, replace(A, adapters=(gone, here)))
    assert isinstance(outcome, Brought)
    (issue,) = outcome.issues
    assert issue.message == "adapter `gone`: file:///gone.gguf is bad"
    assert [each.source for each in outcome.file.adapters] == [here.source]
    assert len(outcome.leases) == 2
    none = await fetch(files, replace(A, adapters=(gone,)))
    assert isinstance(none, Brought)
    assert (none.file.adapters, len(none.leases)) == ((), 1)


async def test_a_draft_model_from_a_source_comes_along_and_is_counted() -> None:
    files = FakeFiles()
    assignment = replace(A, engine=EngineOptions(draft_model="file:///draft.gguf"))
    outcome = await fetch(files, assignment)
    assert isinstance(outcome, Brought)
    file, ((_, lease),) = outcome.file, outcome.leases
    assert file.draft_model == str(files.path)
    assert file.needed > await needed(SETTINGS) + DRAFT.stat().st_size
    lease.release()
    assert files.leases["file:///draft.gguf"].is_released
    files.failures["file:///draft.gguf"] = "not_found"
    failed = await fetch(files, assignment)
    assert isinstance(failed, Issue)
    assert failed.message.startswith("`engine.draft_model`: ")


class TestAdaptersBesideAModel:
    calm = DesiredAdapter(name="calm", source="file:///calm.gguf")
    loud = DesiredAdapter(name="loud", source="file:///loud.gguf")
    here = AdapterOnHost(calm.source, "/calm.gguf", 10)
    beside = ModelFile("/a.gguf", needed=100, adapters=(here,))

    async def bring(self, files: FakeFiles) -> object:
        desired = replace(A, adapters=(self.loud, self.calm))
        return await bring_adapters(files, desired, self.beside, on_progress=lambda _: None)

    async def test_only_what_is_missing_is_fetched(self) -> None:
        files = FakeFiles()
        outcome = await self.bring(files)
        assert isinstance(outcome, Brought)
        file, ((new, lease),) = outcome.file, outcome.leases
        assert new == AdapterOnHost(self.loud.source, str(files.path), files.size)
        assert file == replace(self.beside, needed=100 + files.size, adapters=(new, self.here))
        assert list(files.leases) == [self.loud.source]
        lease.release()
        assert files.leases[self.loud.source].is_released

    async def test_what_cannot_be_had_is_named(self) -> None:
        files = FakeFiles()
        files.failures[self.loud.source] = "not_found"
        outcome = await self.bring(files)
        assert isinstance(outcome, Issue)
        assert outcome.message == "adapter `loud`: file:///loud.gguf is bad"

    async def test_a_mistake_of_ours(self, caplog: pytest.LogCaptureFixture) -> None:
        outcome = await self.bring(BrokenFiles())
        assert isinstance(outcome, Issue)
        assert outcome.code == "fetch_failed" and "IndexError" in caplog.text


async def test_streams_of_their_own_need_whole_blocks() -> None:
    """2 of 300 tokens are 2 of 512 cells; 600 in one cache are 768."""
    sizes = {"name": "box", "slots": 2, "context_size": 300}
    one = await needed(AgentSettings.model_validate({**sizes, "kv_layout": "unified"}))
    each = await needed(AgentSettings.model_validate({**sizes, "kv_layout": "streams"}))
    assert each > one


async def test_streams_with_too_few_cells() -> None:
    settings = AgentSettings(name="box", slots=2, context_size=300, kv_cells=400)
    outcome = await fetch(
        FakeFiles(), settings=settings.model_copy(update={"kv_layout": "streams"})
    )
    assert isinstance(outcome, Issue)
    assert outcome.code == "invalid_options" and "--kv-cells" in outcome.message


async def test_what_does_not_fit_on_the_gpus() -> None:
    files = FakeFiles()
    small = (Device(name="small", memory=1000),)
    assert isinstance(await fetch(FakeFiles(), devices=small), Brought), "what fits is chosen"
    everything = SETTINGS.model_copy(update={"gpu_layers": -1})
    outcome = await fetch(files, settings=everything, devices=small)
    assert isinstance(outcome, Issue)
    assert outcome.code == "too_large" and "GPUs" in outcome.message
    assert files.leases[A.source].is_released
    none_there = AgentSettings(name="box", gpu_layers=0)
    for settings, memory in ((none_there, 1000), (everything, 2**40)):
        devices = (Device(name="gpu", memory=memory),)
        assert isinstance(await fetch(FakeFiles(), settings=settings, devices=devices), Brought)


def remote_demo() -> FakeFiles:
    """Its header is shown before it is fetched."""
    files = FakeFiles()
    with files.path.open("rb") as file:
        files.remote = RemoteModel(read_header(file), files.path.stat().st_size)
    return files


async def fetched_with(files: FakeFiles, host: int, **settings: Any) -> Brought | Unfit | Issue:
    return await fetch_model(
        files,
        SETTINGS.model_copy(update=settings),
        replace(A, projector="file:///p.gguf"),
        on_progress=lambda _: None,
        devices=(Device(name="gpu", memory=1000),),
        host=host,
    )


async def test_what_is_too_large_by_its_header_is_not_fetched() -> None:
    files = remote_demo()
    outcome = await fetched_with(files, host=1000)
    assert isinstance(outcome, Unfit)
    assert outcome.issue.code == "too_large" and "this host has" in outcome.issue.message
    assert outcome.file.needed is not None and outcome.file.needed > 2000
    outcome = await fetched_with(files, host=2**40, gpu_layers=-1)
    assert isinstance(outcome, Issue)
    assert outcome.code == "too_large" and "GPUs" in outcome.message
    assert files.leases == {}, "nothing was fetched"


async def test_what_may_fit_by_its_header_is_fetched() -> None:
    for host, files in ((2**40, remote_demo()), (0, remote_demo()), (1000, FakeFiles())):
        outcome = await fetched_with(files, host=host)
        assert isinstance(outcome, Brought), "there is room, nobody knows, or it shows no header"
    files = remote_demo()
    assert files.remote is not None
    files.remote = replace(files.remote, header=replace(files.remote.header, metadata={}))
    assert isinstance(await fetched_with(files, host=1000), Brought), "its header says too little"


async def test_what_it_claims_of_each_memory() -> None:
    async def claimed(devices: tuple[Device, ...], **options: Any) -> dict[str, int]:
        settings = AgentSettings(name="box", fit_target=2**20)
        assignment = replace(A, engine=EngineOptions(**options))
        outcome = await fetch_model(
            FakeFiles(),
            settings,
            assignment,
            on_progress=lambda _: None,
            devices=devices,
            host=2**36,
        )
        assert isinstance(outcome, Brought), outcome
        return {part.device: part.bytes for part in outcome.file.claims}

    gpus = (Device(name="CUDA0", memory=2**36), Device(name="RPC0", memory=2**36))
    assert (await claimed(())).keys() == {"CPU"}
    assert (await claimed(gpus)).keys() == {"CPU", "CUDA0", "RPC0"}
    assert (await claimed(gpus, device="CUDA0")).keys() == {"CPU", "CUDA0"}
    assert (await claimed(gpus, split_mode="none", main_gpu=0)).keys() == {"CPU", "RPC0"}, (
        "llama.cpp takes those of servers first"
    )


async def test_only_the_chosen_gpus_count() -> None:
    devices = (Device(name="CUDA0", memory=2**40), Device(name="CUDA1", memory=1000))

    async def fetched(**options: Any) -> Brought | Issue:
        settings = SETTINGS.model_copy(update={"gpu_layers": -1, **options})
        return await fetch(FakeFiles(), settings=settings, devices=devices)

    assert isinstance(await fetched(device="CUDA0"), Brought)
    assert isinstance(await fetched(device="none"), Brought)
    assert isinstance(await fetched(split_mode="none"), Brought)
    for small in ({"device": "CUDA1"}, {"split_mode": "none", "main_gpu": 1}):
        outcome = await fetched(**small)
        assert isinstance(outcome, Issue) and outcome.code == "too_large"


async def test_a_gpu_that_is_not_there() -> None:
    files = FakeFiles()
    devices = (Device(name="CUDA0", memory=2**40),)
    wished = replace(A, engine=EngineOptions(device="CUDA0,CUDA7"))
    outcome = await fetch(files, wished, devices=devices)
    assert isinstance(outcome, Issue)
    assert outcome.code == "invalid_options"
    assert outcome.message == "`device`: there is no CUDA7 on this host, which has CUDA0"
    assert files.leases == {}, "nothing was fetched for it"


async def test_a_file_that_is_no_model() -> None:
    files = FakeFiles(Path(__file__))
    outcome = await fetch(files)
    assert isinstance(outcome, Issue)
    assert outcome.code == "not_a_gguf"
    assert files.leases[A.source].is_released


async def test_why_not() -> None:
    files = FakeFiles()
    files.failures[A.source] = "disk_full"
    outcome = await fetch(files)
    assert isinstance(outcome, Issue)
    assert (outcome.code, outcome.hint) == ("disk_full", "mend it")


async def test_nothing_is_downloaded_for_options_that_cannot_be() -> None:
    files = FakeFiles()
    tokens, few = 4096, EngineOptions(kv_cells=16)
    bad = Assignment(name="a", source=A.source, context_size=tokens, engine=few)
    outcome = await fetch(files, bad)
    assert isinstance(outcome, Issue)
    assert outcome.code == "invalid_options"
    assert files.leases == {}


class BrokenFiles(FakeFiles):
    async def fetch(
        self,
        source: str,
        *,
        sha256: str | None = None,
        http_hosts: Sequence[str] = (),
        on_progress: OnProgress,
        on_header: OnHeader | None = None,
    ) -> FetchedModel:
        raise IndexError("a mistake of ours")


async def test_a_mistake_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    outcome = await fetch(BrokenFiles())
    assert isinstance(outcome, Issue)
    assert outcome.code == "fetch_failed"
    assert "IndexError: a mistake of ours" in caplog.text


PLAIN = Assignment(name="m", source="file:///m.gguf")
FULL = replace(
    PLAIN,
    projector="file:///p.gguf",
    engine=EngineOptions(draft_model="file:///d.gguf"),
    adapters=(
        DesiredAdapter(name="b", source="file:///b.gguf"),
        DesiredAdapter(name="a", source="file:///a.gguf", scale=0.5),
    ),
)


async def test_a_model_alone() -> None:
    files = FakeFiles()
    fetched = await fetch_all(files, PLAIN, lambda _: None)
    assert (fetched.projector_path, fetched.draft_path, fetched.adapters) == (None, None, ())


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
    assert [each.name for each in fetched.requested] == ["a"]
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


async def test_hosts_without_tls_are_those_of_the_assignment() -> None:
    files = FakeFiles()
    adapter = DesiredAdapter(name="calm", source="file:///calm.gguf")
    hosts = ("files.lan",)
    await fetch(files, replace(A, adapters=(adapter,), http_hosts=hosts))
    assert files.http_hosts == [hosts, hosts], "the model's and the adapter's"
    files.http_hosts.clear()
    desired = replace(A, adapters=(adapter,), http_hosts=hosts)
    await bring_adapters(files, desired, ModelFile("m.gguf"), on_progress=lambda _: None)
    assert files.http_hosts == [hosts]
