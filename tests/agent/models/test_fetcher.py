"""Fetching by real processes: progress, cancelling, killing, sharing, leases."""

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from arriero.agent.models.fetcher import Fetcher, RateMeter
from arriero.agent.models.models_folder import ModelsFolder, part_of
from arriero.agent.models.port import FetchedModel, FetchError, RemoteModel
from arriero.shared.models.assignments import Download
from tests.agent.gguf.gguf_files import header
from tests.agent.models.file_server import FileServer, Served, model
from tests.agent.models.small_hub import small_hub
from tests.waiting import HANGS

DATA = model(2_000_000)
HALF = 1_000_000


def no_progress(_: Download) -> None:
    """Not looked at."""


class Held:
    """A server that stops in the middle of a file until `go_on`."""

    def __init__(self, server: FileServer) -> None:
        self.server = server
        self._event = threading.Event()
        served = Served(DATA, held=self._event, held_after=HALF)
        self.url = server.serve("/m.gguf", served)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.server.is_holding.wait, HANGS)

    def go_on(self) -> None:
        self._event.set()


async def test_a_download_tells_its_progress_and_ends_with_a_lease(
    tmp_path: Path, server: FileServer
) -> None:
    url = server.serve("/m.gguf", Served(DATA))
    told: list[Download] = []
    fetched = await Fetcher(tmp_path).fetch(url, on_progress=told.append)

    assert fetched.path.read_bytes() == DATA
    assert fetched.bytes == len(DATA)
    assert told[0].total == len(DATA)
    assert told[0].file == url

    tight = ModelsFolder(tmp_path, limit=len(DATA))
    with pytest.raises(FetchError, match="in use"):
        tight.make_room({tight.root / "new": 1})
    fetched.lease.release()
    fetched.lease.release()
    tight.make_room({tight.root / "new": 1})
    assert not fetched.path.exists()


async def test_what_a_header_says_may_end_a_fetch_before_it_has_begun(
    tmp_path: Path, server: FileServer
) -> None:
    data = header({"general.architecture": "llama"}) + bytes(2**18)
    url = server.serve("/m.gguf", Served(data))
    shown: list[RemoteModel] = []

    async def on_header(remote: RemoteModel) -> None:
        shown.append(remote)
        if len(shown) == 1:
            raise ValueError("too large")

    fetcher = Fetcher(tmp_path)
    with pytest.raises(ValueError, match="too large"):
        await fetcher.fetch(url, on_progress=no_progress, on_header=on_header)
    assert len(server.asked) == 1
    fetched = await fetcher.fetch(url, on_progress=no_progress, on_header=on_header)
    assert fetched.path.read_bytes() == data
    assert [each.bytes for each in shown] == [len(data)] * 2


async def test_huggingface_hub_obeys_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "theirs"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with small_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.publish("org/repo", {"M-Q4_0.gguf": DATA})
        fetcher = Fetcher(tmp_path / "models")
        fetched = await fetcher.fetch("hf://org/repo:Q4_0", on_progress=no_progress)
        fetched.lease.release()
        assert fetched.path.read_bytes() == DATA
        first, *_, last = hub.server.asked
        assert first.path.startswith("/api/models/org/repo/")
        assert first.headers["authorization"] == "Bearer hf_secret"
        assert last.path.startswith("/cdn/")
        assert "authorization" not in last.headers

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = await fetcher.fetch("hf://org/repo:Q4_0", on_progress=no_progress)
    again.lease.release()
    assert again.path == fetched.path
    with pytest.raises(FetchError) as caught:
        await fetcher.fetch("hf://org/other:Q4_0", on_progress=no_progress)
    assert caught.value.code == "unreachable"


async def test_a_cancelled_download_stops_at_once_and_goes_on_later(
    tmp_path: Path, server: FileServer
) -> None:
    held = Held(server)
    fetcher = Fetcher(tmp_path)
    fetching = asyncio.ensure_future(fetcher.fetch(held.url, on_progress=no_progress))
    await held.reached()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(HANGS):
            await fetching
    held.go_on()
    fetched = await fetcher.fetch(held.url, on_progress=no_progress)
    fetched.lease.release()

    assert fetched.path.read_bytes() == DATA
    begun = server.starts("/m.gguf")[-1]
    assert begun is None or 0 < begun <= HALF


async def test_a_process_killed_in_a_download_leaves_what_can_be_resumed(
    tmp_path: Path, server: FileServer
) -> None:
    held = Held(server)
    fetcher = Fetcher(tmp_path, command=tell_pid(tmp_path / "pid"))
    fetching = asyncio.ensure_future(fetcher.fetch(held.url, on_progress=no_progress))
    await held.reached()
    part = part_of(ModelsFolder(tmp_path).web_file(held.url, "m.gguf"))
    async with asyncio.timeout(HANGS):
        size = await asyncio.to_thread(half_there, part)
    pid = int((tmp_path / "pid").read_text())
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(FetchError, match="code -9"):
        await fetching
    held.go_on()

    fetched = await fetcher.fetch(held.url, on_progress=no_progress)
    fetched.lease.release()
    assert fetched.path.read_bytes() == DATA
    assert (server.starts("/m.gguf")[-1] or 0) >= size


async def test_a_hang_up_that_all_processes_get_ends_no_download(
    tmp_path: Path, server: FileServer
) -> None:
    held = Held(server)
    fetcher = Fetcher(tmp_path, command=tell_pid(tmp_path / "pid"))
    fetching = asyncio.ensure_future(fetcher.fetch(held.url, on_progress=no_progress))
    await held.reached()
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGHUP)
    held.go_on()
    fetched = await fetching
    fetched.lease.release()
    assert fetched.path.read_bytes() == DATA


def half_there(part: Path) -> int:
    """Its size, once it has a good part of the file."""
    while not part.exists() or part.stat().st_size < HALF // 2:
        time.sleep(0.01)
    return part.stat().st_size


def tell_pid(file: Path) -> list[str]:
    """A fetching process that writes its process id."""
    script = (
        f"import os, pathlib; pathlib.Path({str(file)!r}).write_text(str(os.getpid()))\n"
        "from arriero.agent.models.fetch_process import main; main()"
    )
    return [sys.executable, "-c", script]


async def test_two_agents_share_one_download(tmp_path: Path, server: FileServer) -> None:
    held = Held(server)
    told: list[Download] = []

    def seen(download: Download) -> None:
        told.append(download)
        held.go_on()

    first = asyncio.ensure_future(Fetcher(tmp_path).fetch(held.url, on_progress=no_progress))
    await held.reached()
    second = asyncio.ensure_future(Fetcher(tmp_path).fetch(held.url, on_progress=seen))
    async with asyncio.timeout(HANGS):
        both: list[FetchedModel] = await asyncio.gather(first, second)

    assert {fetched.path.read_bytes() for fetched in both} == {DATA}
    assert len(server.asked) == 1
    assert told[0].total == len(DATA)
    both[0].lease.release()
    with pytest.raises(FetchError, match="in use"):
        ModelsFolder(tmp_path, limit=len(DATA)).make_room({tmp_path / "new": 1})
    both[1].lease.release()


async def test_who_waited_for_a_cancelled_download_goes_on_with_it(
    tmp_path: Path, server: FileServer
) -> None:
    held = Held(server)
    waits = asyncio.Event()
    first = asyncio.ensure_future(Fetcher(tmp_path).fetch(held.url, on_progress=no_progress))
    await held.reached()
    part = part_of(ModelsFolder(tmp_path).web_file(held.url, "m.gguf"))
    await asyncio.to_thread(half_there, part)
    second = asyncio.ensure_future(
        Fetcher(tmp_path).fetch(held.url, on_progress=lambda _: waits.set())
    )
    async with asyncio.timeout(HANGS):
        await waits.wait()
        first.cancel()
        await asyncio.wait([first])
        held.go_on()
        fetched = await second
    fetched.lease.release()

    assert first.cancelled()
    assert fetched.path.read_bytes() == DATA
    assert (server.starts("/m.gguf")[-1] or 0) >= HALF // 2


async def test_a_failure_is_typed(tmp_path: Path, server: FileServer) -> None:
    server.serve("/m.gguf", Served(DATA, statuses=[404]))
    with pytest.raises(FetchError) as caught:
        await Fetcher(tmp_path).fetch(f"{server.url}/m.gguf", on_progress=no_progress)
    assert caught.value.code == "not_found"
    assert caught.value.hint


async def test_a_process_that_cannot_start_is_a_typed_failure(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        await Fetcher(tmp_path, command=["/no/such"]).fetch("file:///m", on_progress=no_progress)
    assert caught.value.code == "fetch_failed"


async def test_room_is_told(tmp_path: Path) -> None:
    assert await Fetcher(tmp_path, limit=1000).room() == 1000


def test_a_rate_and_the_time_left_follow_from_two_counts() -> None:
    meter = RateMeter()
    first = meter.measure(10.0, "m", 100, 1000)
    second = meter.measure(12.0, "m", 300, 1000)

    assert first == Download(file="m", bytes=100, total=1000)
    assert (second.bytes_per_second, second.seconds_left) == (100.0, 7.0)


def test_old_counts_do_not_matter() -> None:
    meter = RateMeter()
    for second in range(100):
        meter.measure(float(second), "m", 10 * second, None)
    slow = [meter.measure(100.0 + second, "m", 990 + second, None) for second in range(20)]
    assert slow[-1].bytes_per_second == 1.0


def test_a_download_that_stands_still_has_no_time_left_to_tell() -> None:
    meter = RateMeter()
    meter.measure(0.0, "m", 100, 1000)
    still = meter.measure(5.0, "m", 100, 1000)
    assert (still.bytes_per_second, still.seconds_left) == (0.0, None)


def test_a_download_that_begins_anew_is_measured_anew() -> None:
    meter = RateMeter()
    meter.measure(0.0, "m", 500, 1000)
    assert meter.measure(1.0, "m", 10, 1000).bytes_per_second is None
    assert meter.measure(2.0, "m", 20, 1000).bytes_per_second == 10.0
