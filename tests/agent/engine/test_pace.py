"""A pace from outside: what is said on the socket, and what becomes of it."""

import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from arriero.agent.engine.pace import SOCKET, STEPS, Allow, Pace
from tests.waiting import HANGS


@contextmanager
def paced(first: bytes) -> Iterator[tuple[Pace, "SimpleQueue[Allow]", socket.socket]]:
    """A pace that got `first`, what it passes on, and the other side of its socket."""
    orders: SimpleQueue[Allow] = SimpleQueue()
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as listener,
        ThreadPoolExecutor(1) as thread,
    ):
        path = str(Path(folder) / "socket")
        listener.bind(path)
        listener.listen()
        made = thread.submit(Pace, {SOCKET: path}, orders.put)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(HANGS)
            connection.sendall(first)
            yield made.result(HANGS), orders, connection


def test_without_its_variables_it_slows_nothing() -> None:
    pace = Pace({}, pytest.fail)
    assert not pace.is_held
    pace.stepped()
    pace.fill(0.0)
    assert not pace.is_held


def test_the_first_line_is_passed_on_before_anything_is_computed() -> None:
    with paced(b"0\n") as (pace, orders, other):
        pace.set(orders.get(timeout=HANGS))
        assert pace.is_held
        assert other.recv(1) == b"\n"


def test_steps_are_counted_down_and_handed_out_anew() -> None:
    with paced(b"2\n") as (pace, orders, other):
        pace.set(orders.get(timeout=HANGS))
        pace.stepped()
        assert not pace.is_held
        pace.stepped()
        assert pace.is_held
        pace.stepped()
        assert pace.is_held
        assert other.recv(1) == b"\n"

        other.sendall(b"1\nfree\n")
        pace.set(orders.get(timeout=HANGS))
        assert not pace.is_held
        pace.stepped()
        assert pace.is_held
        pace.set(orders.get(timeout=HANGS))
        assert not pace.is_held


def test_the_engine_is_free_once_the_other_side_goes() -> None:
    with paced(b"0\n") as (pace, orders, other):
        held = orders.get(timeout=HANGS)
        other.close()
        assert orders.get(timeout=HANGS).num_steps is None
        pace.set(held)  # nobody hears that it is obeyed
        assert pace.is_held


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="soon"), paced(b"soon\n"):
        pass


def test_a_step_is_as_long_as_the_most_a_second_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    pace = Pace({STEPS: "100"}, pytest.fail)
    pace.fill(0.004)
    pace.fill(0.02)
    assert slept == [pytest.approx(0.006)]


def test_the_most_a_second_stands_behind_what_is_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    with paced(b"free 100\n") as (pace, orders, other):
        pace.set(orders.get(timeout=HANGS))
        assert not pace.is_held
        pace.fill(0.004)
        other.sendall(b"3\n")
        pace.set(orders.get(timeout=HANGS))
        pace.fill(0.004)
    assert slept == [pytest.approx(0.006)]
