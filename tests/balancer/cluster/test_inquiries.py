"""Balancers ask one another over the store's notifications."""

import asyncio
import logging

import pytest

from arriero.balancer.cluster.inquiries import MOST_ANSWERING, Inquiries
from arriero.balancer.cluster.notifications import MOST_TEXT, Asked
from arriero.balancer.cluster.peer_store import Beat, Peer
from arriero.balancer.cluster.questions import Replies, Reply
from tests.balancer.cluster.fakes import FakePeerStore
from tests.waiting import given_time


class Company:
    """Balancers over one store; `silent` ones are known, and answer nothing."""

    def __init__(self, *silent: str, patience: float = 10.0) -> None:
        self.store = FakePeerStore()
        self.peers = [self._peer(name) for name in silent]
        self._patience = patience

    def _peer(self, name: str) -> Peer:
        return Peer(Beat(run=f"run-{name}", name=name, version="1"), 0.0)

    async def join(self, name: str) -> Inquiries:
        def respond(what: str, about: str) -> bytes | None:
            if what == "fail":
                raise ValueError("a mistake")
            return f"{name} {what} {about}".encode() if what == "this" else None

        inquiries = Inquiries(
            self.store, f"run-{name}", lambda: self.peers, respond, patience=self._patience
        )
        await self.store.open_session(inquiries.heard, lambda: None)  # type: ignore[arg-type]
        self.peers.append(self._peer(name))
        return inquiries


async def test_all_others_answer() -> None:
    company = Company()
    a = await company.join("a")
    assert await a.ask("this") == Replies(), "it is alone"
    await company.join("b")
    await company.join("c")
    told = await a.ask("this", "x")
    assert told == Replies((Reply("b", b"b this x"), Reply("c", b"c this x")))
    assert a.num_open == 0


@pytest.mark.parametrize("what", ["that", "fail"])
async def test_who_is_silent_is_missing(what: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    company = Company("dead")
    a = await company.join("a")
    await company.join("b")
    async with given_time() as time:

        async def asked(what: str) -> Replies:
            asking = asyncio.create_task(a.ask(what))
            await time.passes_until(asking.done, step=1.0)
            return asking.result()

        assert await asked("this") == Replies((Reply("b", b"b this {}"),), ("dead",))
        assert await asked(what) == Replies((), ("b", "dead"))


async def test_while_the_store_is_away_all_are_missing() -> None:
    company = Company()
    a = await company.join("a")
    await company.join("b")
    company.store.goes_away()
    assert await a.ask("this") == Replies((), ("b",))
    assert a.num_open == 0


async def test_what_is_too_long_is_not_asked() -> None:
    company = Company()
    a = await company.join("a")
    await company.join("b")
    assert await a.ask("this", "x" * (MOST_TEXT + 1)) == Replies((), ("b",))


async def test_only_so_many_answers_are_on_their_way() -> None:
    company = Company()
    a = await company.join("a")
    for number in range(2 * MOST_ANSWERING):
        a.heard(Asked(str(number), "run-b", "this"))
    assert a.num_open == MOST_ANSWERING
    await asyncio.sleep(0)
    a.close()
