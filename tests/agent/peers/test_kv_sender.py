"""Who gets a prefix, and who does not."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.blocks import CheckpointOnDisk, OnDisk
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt, unpack
from arriero.agent.peers.counts import Counts
from arriero.agent.peers.exchange import PrefixRequest, encode, read_answer_head
from arriero.agent.peers.kv_sender import MAX_TICKETS, READING, KvSender
from arriero.agent.peers.wire import Wire
from arriero.shared.quantities import Address
from tests.agent.engine.fake_engine import stored_prompt
from tests.agent.peers.setting import (
    ANY_PORT,
    KEPT,
    MOST_TOKENS,
    ORIGIN,
    PROMPT,
    Cache,
    Mute,
    receiver,
    sender,
    source,
)
from tests.waiting import HANGS


class Scene:
    def __init__(self, cache: Cache, reading: float = READING) -> None:
        self.cache = cache
        self.counts = Counts()
        self.sender: KvSender = sender(cache, self.counts, reading=reading)
        self.address: Address = self.sender.listen(ANY_PORT)

    def connect(self) -> Wire:
        return Wire(socket.create_connection((self.address.host, self.address.port)), 30.0)

    def answer(self, ticket: str = "t", prompt: Prompt = PROMPT) -> int:
        """How many bytes are announced for a request."""
        with self.connect() as wire:
            wire.write([encode(PrefixRequest(ticket, prompt))])
            return read_answer_head(wire, 10**6)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene(Cache())
    yield made
    made.sender.close()


def test_who_has_a_ticket_gets_a_prefix_once(scene: Scene) -> None:
    scene.sender.allow("t", 30.0)
    with scene.connect() as wire:
        wire.write([encode(PrefixRequest("t", PROMPT))])
        size = read_answer_head(wire, 10**6)
        assert unpack(wire, size, key="t", origin=ORIGIN) == KEPT
    assert scene.cache.asked == [PROMPT]
    assert scene.cache.taken_back == []
    assert scene.answer() == 0
    assert scene.cache.asked == [PROMPT]
    scene.sender.close()
    assert scene.counts.total.lent == 1


def test_who_comes_before_its_ticket_waits_a_moment(scene: Scene) -> None:
    with scene.connect() as wire:
        wire.write([encode(PrefixRequest("t", PROMPT))])
        scene.sender.allow("t", 30.0)
        assert read_answer_head(wire, 10**6) > 0


def test_a_ticket_that_is_over_is_none(scene: Scene) -> None:
    scene.sender.allow("t", 0.0)
    assert scene.answer() == 0
    assert scene.cache.asked == []


def test_tickets_are_bounded(scene: Scene) -> None:
    scene.sender.allow("t", 30.0)
    for number in range(MAX_TICKETS):
        scene.sender.allow(str(number), 30.0)
    assert scene.answer() == 0
    assert scene.cache.asked == []


def test_what_is_not_here_is_not_lent(scene: Scene) -> None:
    scene.cache.kept = None
    scene.sender.allow("t", 30.0)
    assert scene.answer() == 0
    assert scene.counts.total.lent == 0


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\nand more",
        encode(PrefixRequest("t", Prompt((1,) * (MOST_TOKENS + 1)))),
    ],
)
def test_nonsense_ends_the_connection_and_the_next_is_served(scene: Scene, said: bytes) -> None:
    with scene.connect() as wire:
        wire.write([said])
        with pytest.raises(OSError):
            wire.read(1)
    scene.sender.allow("t", 30.0)
    assert scene.answer() > 0


def test_an_engine_that_has_stopped_keeps_nobody_from_closing() -> None:
    mute = Mute()
    scene = Scene(mute)
    scene.sender.allow("t", 30.0)
    with scene.connect() as wire:
        wire.write([encode(PrefixRequest("t", PROMPT))])
        assert mute.was_asked.wait(30)
        scene.sender.close()
        with pytest.raises(OSError):
            wire.read(1)
    assert mute.taken_back == [PROMPT]
    with pytest.raises(OSError):
        scene.connect()


def test_what_an_engine_does_not_read_in_time_is_taken_back() -> None:
    mute = Mute()
    scene = Scene(mute, reading=0.01)
    scene.sender.allow("t", 30.0)
    with scene.connect() as wire:
        wire.write([encode(PrefixRequest("t", PROMPT))])
        with pytest.raises(OSError):
            wire.read(1)
    assert mute.taken_back == mute.asked == [PROMPT]
    scene.sender.close()
    assert scene.counts.total.lent == 0


def test_an_address_that_somebody_else_has_is_refused_unless_it_is_taken_over(
    scene: Scene,
) -> None:
    second = sender(Cache())
    with pytest.raises(OSError):
        second.listen(scene.address)
    second.listen(scene.address, takes_over=True)
    second.close()


class Disk:
    """Has the first `num_tokens` of `PROMPT`."""

    def __init__(self, num_tokens: int) -> None:
        self.prefix = stored_prompt(*PROMPT.tokens[:num_tokens])
        self.was_read = False

    def find(self, prompt: Prompt, *, spares_last: bool = True) -> OnDisk | None:
        assert not spares_last
        length = len(self.prefix.prompt)
        return OnDisk((), checkpoint=CheckpointOnDisk("c", length)) if length else None

    def read_parts(self, prompt: Prompt, found: OnDisk, patience: float) -> StoredPrompt | None:
        self.was_read = True
        return self.prefix


@pytest.mark.parametrize(("num_on_disk", "is_read"), [(21, True), (20, False), (0, False)])
async def test_what_only_the_disk_has_is_sent_from_there(num_on_disk: int, is_read: bool) -> None:
    disk: Any = Disk(num_on_disk)
    ours = sender(Cache(), disk=disk)
    address = ours.listen(ANY_PORT)
    ours.allow("t", 30.0)
    theirs = receiver()
    reply: asyncio.Future[StoredPrompt | None] = asyncio.get_running_loop().create_future()
    theirs.fetch(1, source(address), PROMPT, reply.set_result)
    prefix = await asyncio.wait_for(reply, HANGS)
    for each in (theirs, ours):
        await asyncio.to_thread(each.close)
    assert disk.was_read == is_read
    assert prefix == (disk.prefix if is_read else KEPT)
