"""A socket with one deadline for everything."""

import socket
import threading
from collections.abc import Iterator

import pytest

from arriero.agent.peers.wire import CHUNK, Wire


class Clock:
    """Goes on by a `step` whenever it is looked at."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    first, second = socket.socketpair()
    with first, second:
        yield first, second


def test_what_is_written_is_read(ends: tuple[socket.socket, socket.socket]) -> None:
    data = bytes(range(256)) * (3 * CHUNK // 256)
    with Wire(ends[0], 60.0) as ours, Wire(ends[1], 60.0) as theirs:
        parts = [data, memoryview(data)]
        writer = threading.Thread(target=lambda: ours.write(parts))
        writer.start()
        assert bytes(theirs.read(2 * len(data))) == data + data
        assert bytes(theirs.read(0)) == b""
        writer.join()


def test_who_is_slow_in_all_is_late_however_steadily(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ends[1].sendall(b"x" * 4)
    clock = Clock()
    wire = Wire(ends[0], 1.0, clock)
    assert wire.read(2) == b"xx"
    clock.now = 1.0
    with pytest.raises(TimeoutError, match="too long"):
        wire.read(2)
    with pytest.raises(TimeoutError):
        wire.write([b"y"])
    wire.within(1.0)
    assert wire.read(2) == b"xx"
    wire.within(0.01)
    with pytest.raises(TimeoutError):
        wire.read(1)


def test_a_peer_that_goes_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].sendall(b"xy")
    ends[1].close()
    with Wire(ends[0], 60.0) as wire, pytest.raises(ConnectionResetError, match="closed"):
        wire.read(3)


def test_another_thread_breaks_it_off(ends: tuple[socket.socket, socket.socket]) -> None:
    with Wire(ends[0], 60.0) as wire:
        threading.Timer(0.0, wire.close).start()
        with pytest.raises(ConnectionResetError):
            wire.read(1)
    wire.close()  # whoever comes later does no harm
