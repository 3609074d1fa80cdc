"""A worker hears its parent, and ends when that is gone."""

import asyncio
from typing import Any, cast

import pytest

from arriero.balancer.workers import place as module
from arriero.balancer.workers.messages import (
    Granted,
    Living,
    Spread,
    Stop,
    ToWorker,
    decode_to_parent,
    encode,
)
from arriero.balancer.workers.place import VARIABLE, Pipes, Place, place_in
from arriero.shared.lifecycle import Shutdown
from arriero.shared.quantities import Address

PLACE = Place(1, 2, "run", Address("127.0.0.1", 1), Address("::1", 2))


class Out:
    """What the worker says."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, line: bytes) -> None:
        self.lines.append(line)


def pipes(*messages: ToWorker) -> tuple[Pipes, Out]:
    """Of a parent that has said this, and is gone."""
    orders, out = asyncio.StreamReader(), Out()
    for message in messages:
        orders.feed_data(encode(message))
    orders.feed_eof()
    return Pipes(PLACE, orders, cast(Any, out)), out


def test_a_place_is_told_in_the_environment() -> None:
    assert place_in({VARIABLE: PLACE.text()}) == PLACE
    assert place_in({}) is None


def test_workers_have_names_with_numbers() -> None:
    own = PLACE.named("b/1")
    assert own == "b/1/1"
    assert list(PLACE.names(own).items()) == [("b/1/1", 1), ("b/1/0", 0)]


async def test_what_its_parent_tells() -> None:
    told: list[object] = []
    ours, _ = pipes(Living(("run", "other")), Spread(("a", "b")), Granted(1, 3))
    ours.on_news = ours.on_answer = told.append
    shutdown = Shutdown()
    await ours.run(shutdown)
    assert ours.living == ("run", "other")
    assert told == ["a", "b", Granted(1, 3)]
    assert shutdown.requested.is_set(), "the parent is gone"


async def test_a_parent_that_goes_in_the_middle_of_a_line_is_gone() -> None:
    orders = asyncio.StreamReader()
    orders.feed_data(encode(Living(("run", "other"))) + b'{"type":"spre')
    orders.feed_eof()
    ours, shutdown = Pipes(PLACE, orders, cast(Any, Out())), Shutdown()
    await ours.run(shutdown)
    assert ours.living == ("run", "other")
    assert shutdown.requested.is_set()


async def test_a_parent_that_goes_while_it_stops_ends_it_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(module.os, "_exit", codes.append)
    ours, _ = pipes(Stop())
    await ours.run(Shutdown())
    assert codes == [module.EXIT_ORPHANED]


async def test_what_it_tells_its_parent() -> None:
    ours, out = pipes()
    ours.ready(inference=PLACE.inference)
    out.is_closed = True
    ours.ready()
    (line,) = out.lines
    assert decode_to_parent(line) == module.Ready({"inference": "127.0.0.1:1"})
