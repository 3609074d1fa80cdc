"""A worker's side of the pipes to its parent: its number, the serving workers, and when to stop.

A worker ends when its parent has ended. Otherwise nothing would stop the worker, and it would keep
the ports. If the store carries no notifications between balancers, the parent carries them, and
decides which worker leads.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import assert_never

from ...shared import log
from ...shared.lifecycle import Shutdown
from ...shared.quantities import Address, parse_address
from ..store.port import StoreAway
from .notifications import Changed, Letter, Notification, decoded, encoded
from .peer_store import Beat, Peer, PeerSession
from .worker_messages import (
    MOST_BYTES,
    Beating,
    Granted,
    Lead,
    Leave,
    Living,
    Peers,
    Ready,
    Refresh,
    Spread,
    Stop,
    ToParent,
    ToWorker,
    decode_to_worker,
    encode,
)

logger = logging.getLogger(__name__)

VARIABLE = "ARRIERO_WORKER"
"""The environment variable in which a parent tells each worker its number; not a setting."""

EXIT_ORPHANED = 72


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a worker: its number (from 0, of `num` workers), its run, and shared ports."""

    number: int
    num: int
    run: str
    inference: Address
    management: Address

    def named(self, base: str) -> str:
        """Return the name of this worker; `base` is the balancer's name."""
        return f"{base}/{self.number}"

    def names(self, own: str) -> dict[str, int]:
        """Return the names of all workers with their numbers, this worker (`own`) first."""
        base = own.removesuffix(f"/{self.number}")
        return {own: self.number} | {f"{base}/{number}": number for number in range(self.num)}

    def text(self) -> str:
        """Return the place as a text, for `place_in`."""
        addresses = {"inference": str(self.inference), "management": str(self.management)}
        numbers = {"number": self.number, "num": self.num, "run": self.run}
        return json.dumps(numbers | addresses)


def place_in(environment: Mapping[str, str]) -> Place | None:
    """Return the place of this process; `None` if it is not a worker."""
    if not (text := environment.get(VARIABLE)):
        return None
    fields = json.loads(text)
    inference, management = parse_address(fields["inference"]), parse_address(fields["management"])
    return Place(fields["number"], fields["num"], fields["run"], inference, management)


class Pipes:
    """The pipes to and from the parent.

    `on_notification` gets notifications, and `on_answer` the parent's answers.
    """

    def __init__(self, place: Place, orders: asyncio.StreamReader, out: asyncio.WriteTransport):
        self.place = place
        self.living: tuple[str, ...] = (place.run,)
        self.on_notification: Callable[[str], None] = _ignored
        self.on_answer: Callable[[Peers | Granted], None] = _ignored
        self._orders = orders
        self._out = out

    def say(self, message: ToParent) -> None:
        """Send a message to the parent; it is lost if the parent has ended."""
        if not self._out.is_closing():
            self._out.write(encode(message))

    def ready(self, **facts: object) -> None:
        """Report that this worker serves."""
        self.say(Ready({name: str(value) for name, value in facts.items()}))

    async def run(self, shutdown: Shutdown) -> None:
        """Take the parent's messages, until cancelled."""
        try:
            async for line in self._orders:
                self._heard(decode_to_worker(line), shutdown)
        except ValueError:  # of one that was killed, the last line may be torn
            logger.exception("the parent process sent a message that this worker cannot read")
        if shutdown.requested.is_set():
            log.flush()
            os._exit(EXIT_ORPHANED)  # a second signal ended the parent at once
        shutdown.request("the parent process has ended")

    def _heard(self, message: ToWorker, shutdown: Shutdown) -> None:
        match message:
            case Living(runs):
                self.living = runs
            case Stop():
                shutdown.request("the parent process asks for it")
            case Refresh():
                shutdown.refresh("the parent process asks for it")
            case Spread(notifications):
                for each in notifications:
                    self.on_notification(each)
            case Peers() | Granted() as answer:
                self.on_answer(answer)
            case _:
                assert_never(message)


def _ignored(_notification: object) -> None:
    """Ignore the message."""


async def open_pipes(place: Place) -> Pipes:
    """Use standard input and output as pipes; from now on printed text goes to standard error."""
    reports = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=MOST_BYTES)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    )
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(reports, "wb"))
    return Pipes(place, orders, out)


TIMEOUT = 3.0
"""Seconds in which the parent has to answer."""

_IDS = count(1)
"""The ids of questions, over all sessions of this process."""


class HubPeerStore:
    """A `PeerStore` of one worker, over the pipes to its parent."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes

    async def open_session(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
    ) -> PeerSession:
        def heard(text: str) -> None:
            if (notification := decoded(text)) is not None:
                on_notification(notification)

        self._pipes.on_notification = heard
        return HubSession(self._pipes)

    async def send(self, letter: Letter) -> None:
        self.spread([letter])

    async def left(self) -> None:
        self.spread([Changed("peers")])

    def spread(self, notifications: Sequence[Notification]) -> None:
        """Send notifications to all workers, including this one."""
        self._pipes.say(Spread(tuple(encoded(each) for each in notifications)))


class HubSession:
    """A `PeerSession` with the parent process, so it is lost only when the worker ends."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._asked: asyncio.Future[Peers | Granted] | None = None
        self._id = 0
        pipes.on_answer = self._answered

    async def beat(self, beat: Beat) -> Sequence[Peer]:
        answer = await self._ask(Beating(self._next_id(), beat))
        return answer.peers if isinstance(answer, Peers) else ()

    async def lead(self, above: int) -> int | None:
        answer = await self._ask(Lead(self._next_id(), above))
        return answer.epoch if isinstance(answer, Granted) else None

    async def mail(self, run: str) -> Sequence[Letter]:
        return ()  # letters come through the pipes themselves

    async def leave(self, run: str) -> None:
        self._pipes.say(Leave())

    def close(self) -> None:
        self._pipes.say(Leave())

    def _next_id(self) -> int:
        self._id = next(_IDS)
        return self._id

    def _answered(self, answer: Peers | Granted) -> None:
        """Take an answer; a late answer is ignored."""
        if self._asked is not None and not self._asked.done() and answer.id == self._id:
            self._asked.set_result(answer)

    async def _ask(self, question: Beating | Lead) -> Peers | Granted:
        self._asked = asyncio.get_running_loop().create_future()
        self._pipes.say(question)
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._asked
        except TimeoutError as error:
            raise StoreAway("the parent of the workers does not answer") from error
