"""Workers over one file find one another through their parent."""

import asyncio
from typing import Any, cast

import pytest

from arriero.balancer.store.news.records import Changed, News
from arriero.balancer.store.peers.port import Beat, Peer
from arriero.balancer.store.port import StoreAway
from arriero.balancer.workers import hub_store as module
from arriero.balancer.workers.hub import Hub
from arriero.balancer.workers.hub_store import HubPeerStore
from arriero.balancer.workers.messages import (
    Beating,
    Granted,
    Lead,
    Leave,
    Peers,
    Spread,
    ToParent,
)
from arriero.balancer.workers.place import Pipes
from tests.balancer.workers.test_place import pipes
from tests.waiting import HANGS

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
            case Spread(news):
                for each in news:
                    self.pipes.on_news(each)
            case Leave():
                self.hub.left(0)


async def test_a_session_and_its_news() -> None:
    parent, news = Parent(), list[News]()
    store = HubPeerStore(cast(Pipes, parent.pipes))
    session = await store.open_session(news.append, lambda: None)
    assert await session.beat(BEAT) == (Peer(BEAT, 0.0, 1005.0),)
    assert (await session.lead(0), await session.lead(7)) == (1, 8)
    await store.tell(Changed("keys"), Changed("cordons"))
    parent.pipes.on_news("of a later version")
    assert news == [Changed("keys"), Changed("cordons")]
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
