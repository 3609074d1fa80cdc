"""Keeps a balancer in touch with the balancers that share its store.

The balancer sends beats, gets notifications, and leads or follows. One task does this, over one
session. While the store is away no balancer leads: agents keep their models, and requests are
served. When the store is back, everything is read again. Any other error ends the session and
leadership, and the balancer opens another session.
"""

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

from ...shared.inference import AgentId, RequestId
from ...shared.log import context
from ..store.health import StoreHealth
from ..store.port import StoreAway
from .inquiries import Inquiries, Respond
from .leadership import Cancel, Decision, Follow, Lead, Leadership, Read, Retry, ShareWith
from .notifications import (
    MOST_ID,
    SUBJECTS,
    Answered,
    Asked,
    CancelRequest,
    Letter,
    Notification,
    RetryAgent,
    Subject,
)
from .peer_store import Beat, Peer, PeerSession, PeerStore

logger = logging.getLogger(__name__)

BEAT_INTERVAL = 1.0
"""Seconds between two beats; a balancer that does not lead asks for leadership with each beat."""

READ_PAUSE = 0.01
"""Minimum seconds between two readings of changed records, however often they change."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds before the next session is tried, doubled each time, less a random part."""

LAST_WORDS = 2.0
"""Seconds in which the store can take note, at the end, that this balancer leaves."""


MOST_MODELS = 64
"""Maximum models that a balancer reports: the models whose requests have waited longest."""

Waiting = Mapping[str, tuple[int, float]]
"""For each model, how many requests wait, and for how many seconds the oldest has waited."""


def waiting_text(waiting: Waiting) -> str:
    """Return the waiting requests as JSON, for `waiting_in`."""
    longest = sorted(waiting.items(), key=lambda each: -each[1][1])[:MOST_MODELS]
    return json.dumps({name: [num, round(age, 3)] for name, (num, age) in longest})


def waiting_in(text: str) -> Waiting:
    """Return a balancer's report of waiting requests; empty if its form is unknown."""
    try:
        reported = json.loads(text)
        return {str(name): (int(num), float(age)) for name, (num, age) in reported.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def added_up(reported: Iterable[tuple[Waiting, float]]) -> Waiting:
    """Return the waiting requests of several balancers, each reported some seconds ago."""
    total: dict[str, tuple[int, float]] = {}
    for waiting, ago in reported:
        for name, (num, age) in waiting.items():
            known_num, known_age = total.get(name, (0, 0.0))
            total[name] = (known_num + num, max(known_age, age + ago))
    return total


class LedViews(Protocol):
    """The used part of the views of a `Led`."""

    @property
    def outbid(self) -> int | None: ...

    def waiting_by_model(self) -> Waiting: ...


class Led(Protocol):
    """The fleet that a balancer leads: `fleet.runtime.FleetRuntime`."""

    @property
    def views(self) -> LedViews: ...

    def lead(self, epoch: int) -> None: ...

    def follow(self) -> None: ...

    def others(self, num_live: int, waiting: Waiting) -> None: ...

    def retry_agent(self, agent: AgentId) -> None: ...

    def cancel(self, ids: Iterable[RequestId]) -> int: ...


def _no_answer(_what: str, _about: str) -> None:
    """Return `None`, because this balancer knows no questions."""


def _not_told() -> None:
    """Do nothing, because no part needs to know that this balancer leads."""


Reload = Callable[[], Awaitable[bool]]
"""Reads some records of the store again; returns whether it could."""


@dataclass(frozen=True, slots=True)
class PeersStatus:
    """A balancer's place among the others, for operators and metrics."""

    run: str
    is_connected: bool
    epoch: int | None
    peers: tuple[Peer, ...]
    num_unread: int
    reported_ago: float = 0.0
    """Seconds since the store listed `peers`."""


class Peers:
    """The other balancers that share the store."""

    def __init__(
        self,
        store: PeerStore,
        led: Led,
        reloads: Mapping[Subject, Reload],
        *,
        run: str,
        name: str,
        version: str,
        url: str | None = None,
        respond: Respond = _no_answer,
        on_lead: Callable[[], None] = _not_told,
        beat_interval: float = BEAT_INTERVAL,
    ) -> None:
        """Prepare. `reloads` read changed records; `respond` answers other balancers.

        `run` belongs to this start alone.
        """
        self._store = store
        self._led = led
        self._reloads = reloads
        self._run = run
        self._name = name
        self._version = version
        self._url = url
        self._reported_at = 0.0
        self._beat_interval = beat_interval
        self._leadership = Leadership(run)
        self._unread: dict[Subject, None] = {}
        self._rang = asyncio.Event()
        self._session: PeerSession | None = None
        self._num_sessions = 0
        self._beat_at = 0.0
        self._is_leaving = False
        self._health = StoreHealth("the store by which other balancers are heard")
        self._may_lead = True
        self._left = asyncio.Event()
        self._on_lead = on_lead
        self.inquiries = Inquiries(store, run, lambda: self._leadership.peers, respond)
        led.follow()

    def status(self) -> PeersStatus:
        """Return this balancer's place among the others now."""
        leadership, is_connected = self._leadership, self._session is not None
        num_unread = len(self._unread)
        reported_ago = self._now() - self._reported_at if leadership.peers else 0.0
        return PeersStatus(
            self._run, is_connected, leadership.epoch, leadership.peers, num_unread, reported_ago
        )

    # ---- telling the others

    @property
    def here(self) -> str | None:
        """Return the name of this balancer, while there are others."""
        return self._name if self.num_live > 1 else None

    @property
    def num_live(self) -> int:
        """The number of live balancers, including this one."""
        return self._leadership.num_live

    async def cancel(self, id: RequestId) -> bool:
        """Let the balancer that runs this request cancel it.

        Returns whether other balancers were notified.
        """
        return self.num_live > 1 and len(id) <= MOST_ID and await self._is_sent(CancelRequest(id))

    async def retry(self, agent: AgentId) -> None:
        """Let the leader tell this agent to try again, if another balancer leads."""
        if self._leadership.epoch is None and len(agent) <= MOST_ID:
            await self._is_sent(RetryAgent(agent))

    async def _is_sent(self, letter: Letter) -> bool:
        try:
            await self._store.send(letter)
        except StoreAway as error:
            logger.warning("a message to the other balancers could not be sent: %s", error)
            return False
        return True

    # ---- in the background

    async def run(self) -> None:
        """Take part, until `leave` or until cancelled."""
        pause = FIRST_PAUSE
        while not self._is_leaving:
            try:
                await self._meet()
                pause = FIRST_PAUSE
            except StoreAway as error:
                self._health.went_away(error)
            except Exception:  # a balancer that does not lead serves requests, too
                logger.exception(
                    "the exchange with other balancers failed and starts again after a pause"
                )
            finally:
                self._end_session()
            self._rang.clear()  # it rang for the session that has just ended
            if not self._is_leaving:
                await self._ring(pause * (1 - random.random() / 2))
            pause = min(2 * pause, LONGEST_PAUSE)
        self.inquiries.close()
        self._left.set()

    def resign(self) -> None:
        """Stop leading, but still receive notifications: this balancer is about to stop."""
        self._may_lead = False
        self._end_session()

    async def leave(self) -> None:
        """Leave in good order, so that another balancer leads at once; `run` then returns."""
        self._is_leaving = True
        self._rang.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._left.wait()

    # ---- a session

    async def _meet(self) -> None:
        """Open a session, and stay in it until it ends. Raises `StoreAway`."""
        self._num_sessions += 1
        lost = partial(self._lost, self._num_sessions)
        session = self._session = await self._store.open_session(self._heard, lost)
        self._health.answered()
        self._carry_out(self._leadership.connected())
        self._beat_at = self._now()
        while self._session is session and not self._is_leaving:
            if self._beat_at <= self._now():
                await self._beat(session)
            if self._unread:
                await self._read_anew(session)
                await asyncio.sleep(READ_PAUSE)
            await self._ring(self._beat_at - self._now())
        if self._session is session:
            await session.leave(self._run)
            await self._store.left()

    async def _beat(self, session: PeerSession) -> None:
        leadership = self._leadership
        if self._may_lead and leadership.must_ask(outbid := self._led.views.outbid):
            self._carry_out(leadership.granted(await session.lead(outbid or 0)))
        beat = Beat(
            run=self._run,
            name=self._name,
            version=self._version,
            is_leading=leadership.epoch is not None,
            waiting=waiting_text(self._led.views.waiting_by_model()),
            url=self._url,
        )
        self._carry_out(leadership.beaten(await session.beat(beat)))
        self._reported_at = self._now()
        self._beat_at = self._reported_at + self._beat_interval

    async def _read_anew(self, session: PeerSession) -> None:
        """Read everything again; a failed read is repeated after the next beat."""
        for what in sorted(self._unread, key=SUBJECTS.index):
            del self._unread[what]
            if what == "mail":
                for letter in await session.mail(self._run):
                    self._heard(letter)
            elif what == "peers":
                self._beat_at = self._now()
            elif not await self._reloads[what]():
                self._unread[what] = None

    async def _ring(self, within: float) -> None:
        """Wait for work, for at most `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, within)):
                await self._rang.wait()
        self._rang.clear()

    def _heard(self, notification: Notification) -> None:
        if isinstance(notification, Asked | Answered):
            self.inquiries.heard(notification)
        else:
            self._carry_out(self._leadership.heard(notification))

    def _lost(self, session: int) -> None:
        if session == self._num_sessions:
            self._end_session()

    def _end_session(self) -> None:
        """End the session in any case, since no balancer leads without a session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        self._carry_out(self._leadership.lost())
        self._rang.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # ---- decisions

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._do(decision)

    def _do(self, decision: Decision) -> None:
        match decision:
            case Read(what):
                self._unread[what] = None
                self._rang.set()
            case Lead(epoch):
                logger.info(
                    "this balancer leads: it decides which agent serves which model",
                    extra=context(epoch=epoch),
                )
                self._led.lead(epoch)
                self._on_lead()
            case Follow():
                logger.warning(
                    "this balancer no longer leads: another balancer decides which agent "
                    "serves which model"
                )
                self._led.follow()
            case ShareWith(peers):
                reported = [(waiting_in(peer.beat.waiting), peer.age) for peer in peers]
                self._led.others(self._leadership.num_live, added_up(reported))
            case Cancel(id):
                self._led.cancel([RequestId(id)])
            case Retry(agent):
                self._led.retry_agent(AgentId(agent))
            case _:
                assert_never(decision)
