"""A worker hears its parent, and ends when that is gone."""

import asyncio
from typing import Any, cast

import pytest

from arriero.balancer.cluster import worker as module
from arriero.balancer.cluster.notifications import CancelRequest, Changed, Notification
from arriero.balancer.cluster.peer_store import Beat, Peer
from arriero.balancer.cluster.supervisor import Hub
from arriero.balancer.cluster.worker import VARIABLE, HubPeerStore, Pipes, Place, place_in
from arriero.balancer.cluster.worker_messages import (
    Beating,
    Granted,
    Lead,
    Leave,
    Living,
    Peers,
    Spread,
    Stop,
    ToParent,
    ToWorker,
    decode_to_parent,
    encode,
)
from arriero.balancer.store.port import StoreAway
from arriero.shared.lifecycle import Shutdown
from arriero.shared.quantities import Address
from tests.waiting import HANGS

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
    ours.on_notification = ours.on_answer = told.append
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


BEAT = Beat(run="r", name="b/0", version="1")


class Parent:
    """Answers with a hub, unless it is silent."""

    def __init__(self) -> None:
        self.hub, self.is_silent = Hub(), False
        self.pipes, _ = pipes()
        self.pipes.say = self.heard  # type: ignore[method-assign]

    def heard(self, message: ToParent) -> None:
        if self.is_silent:
            return
        match message:
            case Beating(id, beat):
                peers = self.hub.beat(0, beat, 5.0, 1005.0)
                self.pipes.on_answer(Peers(id - 1, ()))  # an answer to what was given up
                self.pipes.on_answer(Peers(id, peers))
            case Lead(id, above):
                self.pipes.on_answer(Granted(id, self.hub.lead(0, above)))
            case Spread(notifications):
                for each in notifications:
                    self.pipes.on_notification(each)
            case Leave():
                self.hub.left(0)


async def test_a_session_and_its_news() -> None:
    parent, notifications = Parent(), list[Notification]()
    store = HubPeerStore(cast(Pipes, parent.pipes))
    session = await store.open_session(notifications.append, lambda: None)
    assert await session.beat(BEAT) == (Peer(BEAT, 0.0, 1005.0),)
    assert (await session.lead(0), await session.lead(7)) == (1, 8)
    store.spread([Changed("keys")])
    await store.send(CancelRequest("r"))
    await store.left()
    parent.pipes.on_notification("of a later version")
    assert notifications == [Changed("keys"), CancelRequest("r"), Changed("peers")]
    await session.leave("r")
    assert parent.hub.lead(1, 0) == 9, "nobody leads any more"


async def test_a_parent_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = Parent()
    session = await HubPeerStore(cast(Any, parent.pipes)).open_session(print, lambda: None)
    parent.is_silent = True
    with monkeypatch.context() as patched:
        patched.setattr(module, "TIMEOUT", 0.01)
        with pytest.raises(StoreAway, match="the parent of the workers does not answer"):
            await session.beat(BEAT)
    parent.is_silent = False
    async with asyncio.timeout(HANGS):
        assert await session.lead(0) == 1
