"""A parent runs its workers, starts a lost one again, and ends when all have."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from arriero.balancer.cluster.peer_store import Beat, Peer
from arriero.balancer.cluster.supervisor import Hub, Supervisor, reserve
from arriero.balancer.cluster.worker import Place
from arriero.shared.lifecycle import Shutdown, StartupError
from arriero.shared.quantities import Address
from tests.balancer.cluster import fake_worker
from tests.waiting import HANGS

PLACE = Place(0, 2, "", Address("127.0.0.1", 1), Address("127.0.0.1", 2))
WORKER = [sys.executable, fake_worker.__file__]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS):
        while not holds():  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0)


async def test_a_worker_that_is_lost_starts_again_and_all_end_together(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")

    def started() -> list[int]:
        records = [each for each in caplog.records if each.message == "a worker starts"]
        return [vars(each)["context"]["pid"] for each in records]

    shutdown, said = Shutdown(), ""

    def is_ready() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return said == "ready balancer inference=127.0.0.1:1\n"

    async with asyncio.TaskGroup() as group:
        running = group.create_task(Supervisor(WORKER, PLACE, group).run(shutdown))
        await until(is_ready)
        os.kill(started()[1], signal.SIGKILL)
        await until(lambda: len(started()) == 3)
        shutdown.request("the test is over")
        assert await running == 0
    assert "a worker process has ended and will be started again after a pause" in caplog.text


async def test_one_that_ends_in_the_middle_of_a_line_ends_nobody_else(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("INFO")
    shutdown, torn = Shutdown(), [*WORKER, "torn", str(tmp_path / "torn")]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(Supervisor(torn, PLACE, group).run(shutdown))
        await until(lambda: caplog.text.count("a worker starts") == 3)
        shutdown.request("the test is over")
        assert await running == 0
    assert "a worker process is killed" in caplog.text


async def test_one_that_cannot_start_is_the_end() -> None:
    async with asyncio.TaskGroup() as group:
        assert await Supervisor([*WORKER, "fails"], PLACE, group).run(Shutdown()) == 3
    async with asyncio.TaskGroup() as group:
        assert await Supervisor(["/no/such/program"], PLACE, group).run(Shutdown()) == 1


ONE, TWO = (Beat(run=name, name=name, version="1") for name in ("one", "two"))


def test_all_that_have_told_of_themselves_live() -> None:
    hub = Hub()
    assert hub.beat(1, TWO, 5.0, 1005.0) == (Peer(TWO, 0.0, 1005.0),)
    assert hub.beat(0, ONE, 6.0, 1006.0) == (Peer(ONE, 0.0, 1006.0), Peer(TWO, 1.0, 1005.0))
    hub.left(1)
    assert hub.beat(0, ONE, 7.0, 1007.0) == (Peer(ONE, 0.0, 1006.0),)


def test_one_leads_until_it_leaves_and_epochs_grow() -> None:
    hub = Hub()
    assert (hub.lead(0, 0), hub.lead(1, 9), hub.lead(0, 5)) == (1, None, 6)
    hub.left(1)
    assert hub.lead(1, 0) is None
    hub.left(0)
    assert hub.lead(1, 0) == 7


ANY = Address("127.0.0.1", 0)


@pytest.fixture
def ports() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listener(port: int, *, is_shared: bool) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind(("127.0.0.1", port))
    found.listen()
    return found


def test_several_may_listen_there_and_get_all_connections(ports: ExitStack) -> None:
    port = reserve(ANY, "--x", ports).port
    with listener(port, is_shared=True), listener(port, is_shared=True):
        for _ in range(8):
            socket.create_connection(("127.0.0.1", port), timeout=HANGS).close()


@pytest.mark.parametrize("is_shared", [False, True])
def test_where_somebody_listens_nothing_is_reserved(ports: ExitStack, is_shared: bool) -> None:
    with listener(0, is_shared=is_shared) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(StartupError, match=r"--x: cannot listen on .*: address already in use"):
            reserve(address, "--x", ports)


def test_a_name_that_there_is_not(ports: ExitStack) -> None:
    with pytest.raises(StartupError, match="--x"):
        reserve(Address("no-such-host.invalid", 0), "--x", ports)
