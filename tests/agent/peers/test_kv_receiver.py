"""A prefix comes, or it is computed; and nobody waits for a peer that is late, or lies."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt, pack
from arriero.agent.peers.counts import Counts
from arriero.agent.peers.exchange import answer_head
from arriero.agent.peers.kv_receiver import (
    FIRST_REST,
    LONGEST_REST,
    MAX_FETCHES,
    MAX_PEERS,
    KvReceiver,
    Resting,
)
from arriero.shared.inference.prefix_peers import PrefixSource
from arriero.shared.quantities import LOOPBACK, Address
from tests.agent.engine.fake_engine import stored_prompt
from tests.agent.peers.setting import (
    ANY_PORT,
    KEPT,
    ORIGIN,
    PROMPT,
    TOKENS,
    Cache,
    receiver,
    sender,
    source,
)
from tests.waiting import HANGS


class Scene:
    """`replies` are those that came."""

    def __init__(self, made: KvReceiver, counts: Counts) -> None:
        self.receiver = made
        self.counts = counts
        self.replies: asyncio.Queue[StoredPrompt | None] = asyncio.Queue()

    def ask(self, where: PrefixSource, id: int = 1, prompt: Prompt = PROMPT) -> None:
        self.receiver.fetch(id, where, prompt, self.replies.put_nowait)

    async def fetch(self, where: PrefixSource, id: int = 1) -> StoredPrompt | None:
        self.ask(where, id)
        return await asyncio.wait_for(self.replies.get(), HANGS)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    counts = Counts()
    made = Scene(receiver(counts), counts)
    yield made
    made.receiver.close()


class Liars:
    """Peers that answer whatever is asked with the same bytes, and then say nothing more."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._listeners: list[socket.socket] = []

    def __call__(self, said: bytes) -> Address:
        listener = socket.create_server((LOOPBACK, 0))
        self._listeners.append(listener)
        thread = threading.Thread(target=self._serve, args=(listener, said))
        self._threads.append(thread)
        thread.start()
        return Address(LOOPBACK, listener.getsockname()[1])

    def close(self) -> None:
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for listener in self._listeners:
            listener.close()

    def _serve(self, listener: socket.socket, said: bytes) -> None:
        """All of them at once, until nobody listens any more and they have closed."""
        open_ones: list[socket.socket] = []
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_ones.append(connection)
                connection.sendall(said)
        for connection in open_ones:
            connection.close()


@pytest.fixture
def liars() -> Iterator[Liars]:
    made = Liars()
    yield made
    made.close()


async def test_a_prefix_comes_from_who_has_it(scene: Scene) -> None:
    cache = Cache()
    sending = sender(cache)
    address = sending.listen(ANY_PORT)
    sending.allow("t", 30.0)
    assert await scene.fetch(source(address)) == KEPT
    assert cache.asked == [PROMPT.part(0, len(PROMPT) - 1)]
    done = scene.counts.total
    assert (done.num, done.failed, done.tokens) == (1, 0, len(TOKENS))
    assert done.bytes > 0 and done.seconds > 0
    await asyncio.to_thread(sending.close)


async def test_what_a_peer_does_not_have_is_computed_and_it_may_be_asked_again(
    scene: Scene,
) -> None:
    cache = Cache(None)
    sending = sender(cache)
    address = sending.listen(ANY_PORT)
    for ticket in ("a", "b"):
        sending.allow(ticket, 30.0)
        assert await scene.fetch(source(address, ticket)) is None
    assert len(cache.asked) == 2
    assert scene.counts.total.failed == 2
    await asyncio.to_thread(sending.close)


def answer(prefix: StoredPrompt, *, size: int | None = None, spoil: bool = False) -> bytes:
    data = b"".join(map(bytes, pack("t", ORIGIN, prefix)))
    if spoil:
        data = data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]
    return answer_head(len(data) if size is None else size) + data


LIES = {
    "nonsense": b"HTTP/1.1 400 Bad Request\r\n\r\n and so on",
    "far too much": answer_head(10**15),
    "another prompt's": answer(stored_prompt(9, 9, 9)),
    "more than was asked for": answer(stored_prompt(*PROMPT.tokens, 5)),
    "damaged": answer(KEPT, spoil=True),
    "another model's": answer_head(200) + b"x" * 200,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_a_peer_that_lies_is_left_alone_for_a_while(
    scene: Scene, liars: Liars, lie: bytes
) -> None:
    address = liars(lie)
    assert await scene.fetch(source(address)) is None
    assert scene.counts.total.failed == 1
    scene.ask(source(address))
    assert scene.replies.get_nowait() is None  # at once
    assert scene.counts.total.failed == 2


async def test_a_peer_that_says_nothing_is_given_up_when_computing_would_be_done(
    scene: Scene, liars: Liars
) -> None:
    address = liars(answer_head(500) + b"ARR")
    assert await scene.fetch(source(address, seconds=0.05)) is None
    assert scene.counts.total.failed == 1


async def test_a_peer_that_is_not_there(scene: Scene) -> None:
    with socket.create_server((LOOPBACK, 0)) as nobody:
        port = nobody.getsockname()[1]
    assert await scene.fetch(source(Address(LOOPBACK, port))) is None
    assert await scene.fetch(source("no address")) is None
    assert scene.counts.total.failed == 2


async def test_what_is_abandoned_is_not_answered(scene: Scene, liars: Liars) -> None:
    address = liars(b"")
    scene.ask(source(address))
    scene.receiver.abandon(1)
    scene.receiver.abandon(1)
    await asyncio.to_thread(scene.receiver.close)
    await asyncio.sleep(0)
    assert scene.replies.empty()
    assert scene.counts.total.failed == 0


async def test_only_a_few_come_at_once(scene: Scene, liars: Liars) -> None:
    address = liars(b"")
    for number in range(MAX_FETCHES):
        scene.ask(source(address), number)
    assert scene.replies.empty()
    scene.ask(source(address), MAX_FETCHES)
    assert scene.replies.get_nowait() is None


async def test_what_has_no_place_in_memory_is_computed() -> None:
    counts = Counts()
    scene = Scene(receiver(counts, most_bytes=100), counts)
    scene.ask(source("127.0.0.1:1"))
    assert scene.replies.get_nowait() is None
    scene.ask(source("127.0.0.1:1"), 2, Prompt((1,)))
    assert scene.replies.get_nowait() is None
    await asyncio.to_thread(scene.receiver.close)


async def test_another_models_cells_are_not_taken(scene: Scene) -> None:
    other = replace(ORIGIN, engine="e 2")
    sending = sender(Cache(), origin=other)
    address = sending.listen(ANY_PORT)
    sending.allow("t", 30.0)
    assert await scene.fetch(source(address)) is None
    await asyncio.to_thread(sending.close)


# ---- peers that failed are left alone

A = "127.0.0.1:1"


def test_a_peer_that_fails_rests_longer_each_time_until_it_works() -> None:
    resting = Resting()
    assert resting.may_ask(A, 0.0)
    resting.failed(A, 0.0)
    assert not resting.may_ask(A, FIRST_REST - 0.1)
    assert resting.may_ask("another", 0.0)
    assert resting.may_ask(A, FIRST_REST)
    resting.failed(A, 10.0)
    assert not resting.may_ask(A, 10.0 + FIRST_REST)
    assert resting.may_ask(A, 10.0 + 2 * FIRST_REST)
    resting.worked(A)
    resting.failed(A, 100.0)
    assert resting.may_ask(A, 100.0 + FIRST_REST)


def test_rests_are_bounded_and_so_are_the_peers() -> None:
    resting = Resting()
    for _ in range(20):
        resting.failed(A, 0.0)
    assert resting.may_ask(A, LONGEST_REST)
    for number in range(MAX_PEERS + 5):
        resting.failed(str(number), 0.0)
    assert len(resting) == MAX_PEERS
