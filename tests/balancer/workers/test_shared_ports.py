"""A port is kept for the processes of one parent, and not where another program listens."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from arriero.balancer.workers.shared_ports import reserve
from arriero.shared.lifecycle import StartupError
from arriero.shared.quantities import Address
from tests.waiting import HANGS

ANY = Address("127.0.0.1", 0)


@pytest.fixture
def until() -> Iterator[ExitStack]:
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


def test_several_may_listen_there_and_get_all_connections(until: ExitStack) -> None:
    port = reserve(ANY, "--x", until).port
    with listener(port, is_shared=True), listener(port, is_shared=True):
        for _ in range(8):
            socket.create_connection(("127.0.0.1", port), timeout=HANGS).close()


@pytest.mark.parametrize("is_shared", [False, True])
def test_where_somebody_listens_nothing_is_reserved(until: ExitStack, is_shared: bool) -> None:
    with listener(0, is_shared=is_shared) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(StartupError, match=r"--x: cannot listen on .*: address already in use"):
            reserve(address, "--x", until)


def test_a_name_that_there_is_not(until: ExitStack) -> None:
    with pytest.raises(StartupError, match="--x"):
        reserve(Address("no-such-host.invalid", 0), "--x", until)
