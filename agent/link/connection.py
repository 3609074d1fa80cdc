"""Keeps one balancer connected: dials it, feeds its session, carries out the session's decisions.

All methods run on the event loop's thread. The log says once a minute that a balancer is away, and
once that it is back.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import assert_never

from websockets.exceptions import WebSocketException

from ...shared import log
from ...shared.inference import RequestId
from ...shared.lifecycle import StartupError
from ...shared.log import context
from ...shared.log_bell import LogBell
from ...shared.messages import Evicted, FitRead, FromAgent, Item, Status
from ...shared.queries import Result
from ...shared.reports.statistics import Statistics
from ..generation.port import Generation, Queries, QueryId
from ..sequence_id import SequenceId
from .balancer_secrets import BalancerSecrets
from .balancer_socket import FAILED, WELL, BalancerSocket
from .decisions import (
    Allow,
    AnswerQuery,
    CancelGeneration,
    Close,
    Decision,
    DiscardGeneration,
    FailGeneration,
    GiveUp,
    HostOrder,
    KeepSecret,
    MarkConnected,
    Obey,
    Send,
    SendLog,
    StartGeneration,
    WithdrawQuery,
)
from .dialling import VARIABLE, KeyRefused, dial
from .session import Session

FIRST_CEILING = 0.1
LAST_CEILING = 5.0
REFUSED_CEILING = 60.0
"""Maximum pause after a refused key. It is longer, since a person has to fix the key first."""


class Backoff:
    """The pauses between dials, in seconds: exponential backoff with full jitter.

    Full jitter (any time from zero to the ceiling) keeps the agents of a fleet from reconnecting
    all at once.
    """

    def __init__(self) -> None:
        self._ceiling = FIRST_CEILING

    def next_pause(self, jitter: float) -> float:
        """Return the next pause in seconds; `jitter` is uniform in [0, 1)."""
        pause = self._ceiling * jitter
        self._ceiling = min(self._ceiling * 2, LAST_CEILING)
        return pause

    def refused(self, jitter: float) -> float:
        """Return the pause after a refused key: at least half of `REFUSED_CEILING`."""
        self._ceiling = LAST_CEILING
        return REFUSED_CEILING * (1 + jitter) / 2

    def reset(self) -> None:
        """Start again with short pauses: an attempt succeeded."""
        self._ceiling = FIRST_CEILING


logger = logging.getLogger(__name__)

AWAY_AGAIN = 60.0
"""Seconds after which the log repeats that a balancer is away."""

PATH = "/api/v1/agent-socket"


def _nothing() -> None:
    """Do nothing when a dial or connection ends."""


def _no_tickets(ticket: str, seconds: float) -> None:
    """Ignore the ticket: this agent transfers no prefixes."""


class Connection:
    """Keeps `session` connected to the balancer at `url` (its management address)."""

    def __init__(
        self,
        url: str,
        session: Session,
        generation: Generation,
        queries: Queries,
        *,
        secrets: BalancerSecrets,
        on_connected: Callable[[], None],
        on_change: Callable[[], None],
        on_order: Callable[[HostOrder], None],
        on_ended: Callable[[], None] = _nothing,
        on_ticket: Callable[[str, float], None] = _no_tickets,
        dial: Callable[[str], Awaitable[BalancerSocket]] = dial,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Set the callbacks. All processes of the agent share `secrets`.

        `on_connected`: the balancer accepted the agent. `on_change`: slots may be free now.
        `on_order`: the balancer gave an order for this host. `on_ended`: a dial failed, or its
        connection ended. `on_ticket`: another agent got a ticket for a prefix, valid for the given
        seconds.
        """
        self._url = url
        self._session = session
        self._generation = generation
        self._queries = queries
        self._secrets = secrets
        self._on_connected = on_connected
        self._on_change = on_change
        self._on_order = on_order
        self._on_ended = on_ended
        self._on_ticket = on_ticket
        self._dial = dial
        self._clock = clock
        self._jitter = jitter
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None
        self._socket: BalancerSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._final_word: str | None = None
        self._is_stopping = False
        self._away: tuple[str, float] | None = None
        """Why the balancer is away, and when the log last said so."""

    @property
    def is_live(self) -> bool:
        """Return whether the balancer has accepted the agent."""
        return self._session.is_live

    async def run(self) -> None:
        """Serve the balancer until `drain` or `engine_stopped`, dialling as often as needed.

        Raises `StartupError` if the balancer says that dialling again cannot help.
        """
        self._task = asyncio.current_task()
        while not self._is_stopping:
            pause = await self._connect()
            self._on_ended()
            if self._final_word is not None:
                raise StartupError(f"balancer {self._url} refuses this agent: {self._final_word}")
            if not self._is_stopping:
                await asyncio.sleep(pause)

    async def _connect(self) -> float:
        """Dial and serve one connection; return the pause before the next dial, in seconds."""
        try:
            await self._serve(await self._dial(self._url + PATH))
        except KeyRefused as error:
            pause = self._backoff.refused(self._jitter())
            self._report_refused(str(error), pause)
            return pause
        except (OSError, WebSocketException) as error:
            self._report_away("cannot reach the balancer", str(error) or type(error).__name__)
        return self._backoff.next_pause(self._jitter())

    async def _serve(self, socket: BalancerSocket) -> None:
        self._socket = socket
        bell = LogBell(self._log_grew, lambda: self._session.awaits_log)
        try:
            secret = self._secrets.of(socket.balancer)
            self._carry_out(self._session.connected(self._clock(), secret))
            await socket.serve(self._take, self._heard, self._cannot_send)
        finally:
            bell.close()
            self._carry_out(self._session.disconnected())
            self._socket = None
        self._report_away("lost the balancer", socket.why_closed)

    def _cannot_send(self, id: RequestId) -> None:
        """Log the exception being handled, and end the request; the balancer gets an error."""
        logger.exception("an answer cannot be sent", extra=context(request=id))
        self._carry_out(self._session.unsendable(id))

    def _heard(self) -> None:
        self._session.heard(self._clock())

    def _log_grew(self) -> None:
        for decision in self._session.log_grew():
            self._do(decision)

    def _take(self, frame: str | bytes) -> None:
        self._carry_out(self._session.read(frame, self._clock()))

    # ---- events of the agent

    def produced(self, items: tuple[Item, ...], released: tuple[SequenceId, ...]) -> None:
        """Take the `items` of one event; the resources of the `released` sequences are free."""
        self._carry_out(self._session.produced(items, released, self._clock()))
        if released:
            self._on_change()  # a save held its slot even if its request was discarded

    def slots_changed(self) -> None:
        """Tell the session that a slot may have become free."""
        for decision in self._session.slots_changed(self._clock()):
            self._do(decision)

    def status_changed(self, status: Status) -> None:
        """Tell the session the agent's new status."""
        self._carry_out(self._session.status_changed(status, self._clock()))

    def host_changed(self, num_places: int) -> None:
        """Tell the session that this host now runs `num_places` agents."""
        self._session.host_changed(num_places)

    def report(self, statistics: Statistics) -> None:
        """Pass on new statistics of the engine."""
        self._carry_out(self._session.report(statistics, self._clock()))

    def evicted(self, evicted: Evicted) -> None:
        """Pass on which prefixes left the engine's cache."""
        self._carry_out(self._session.evicted(evicted, self._clock()))

    def fit_found(self, read: FitRead) -> None:
        """Tell the balancer how this host would load the model that the balancer asked about."""
        self._carry_out(self._session.fit_found(read, self._clock()))

    def drain(self, timeout: float) -> None:
        """Accept no new requests, finish running ones within `timeout` seconds, then let `run`
        return.
        """
        now = self._clock()
        self._stop(self._session.drain(now, now + timeout))

    def engine_stopped(self, reason: str) -> None:
        """Leave the balancer at once, then let `run` return."""
        self._stop(self._session.engine_stopped(reason))

    def _stop(self, decisions: list[Decision]) -> None:
        self._is_stopping = True
        self._carry_out(decisions)
        if self._socket is None and self._task is not None:
            self._task.cancel()

    def _answered(self, query: QueryId, result: Result) -> None:
        self._carry_out(self._session.answered(query, result, self._clock()))

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self._session.tick(self._clock()))

    # ---- decisions

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            self._do(decision)
        self._arm()
        if decisions:
            self._on_change()

    def _do(self, decision: Decision) -> None:
        match decision:
            case Send(message):
                self._put(message)
            case MarkConnected():
                self._mark_connected()
            case KeepSecret(secret):
                self._keep(secret)
            case StartGeneration(sequence, start):
                self._generation.start(sequence, start, self)
            case CancelGeneration(sequence):
                self._generation.cancel(sequence)
            case FailGeneration(sequence, error):
                self._generation.fail(sequence, error)
            case DiscardGeneration(sequence):
                self._generation.discard(sequence)
            case AnswerQuery(id, query):
                self._queries.answer(id, query, partial(self._answered, id))
            case WithdrawQuery(query_id):
                self._queries.withdraw(query_id)
            case Obey(order):
                self._on_order(order)
            case Allow(ticket, seconds):
                self._on_ticket(ticket, seconds)
            case SendLog(id, after):
                lines = log.recent(after)
                for decision in self._session.read_own_log(id, lines, self._clock()):
                    self._do(decision)
            case Close(reason, is_failure):
                self._close(reason, is_failure=is_failure)
            case GiveUp(reason):
                self._final_word = reason
                self._close(reason)
            case _:
                assert_never(decision)

    def _put(self, message: FromAgent) -> None:
        if self._socket is not None:
            self._socket.put(message)

    def _keep(self, secret: str) -> None:
        balancer = None if self._socket is None else self._socket.balancer
        if balancer is not None:
            self._secrets.given(balancer, secret)

    def _close(self, reason: str, *, is_failure: bool = False) -> None:
        if self._socket is not None:
            self._socket.close(reason, FAILED if is_failure else WELL)

    def _mark_connected(self) -> None:
        self._backoff.reset()
        self._away = None
        logger.info("connected to the balancer", extra=context(balancer=self._url))
        self._on_connected()

    def _arm(self) -> None:
        """Make sure that the timer fires no later than the next deadline."""
        deadline = self._session.next_deadline()
        if self._timer is not None and deadline is not None and self._timer_at <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            delay = max(0.0, deadline - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)
            self._timer_at = deadline

    def _report_refused(self, reason: str, pause: float) -> None:
        """Log a refused key each time: it is rare, and people may read only the end of the log."""
        logger.warning(
            "the balancer at %s refuses this agent: %s; its key (of the role agent) comes from "
            "--key-file or %s, its certificate from --tls-cert; trying again in %.0f s",
            self._url,
            " ".join(reason.split()),
            VARIABLE,
            pause,
        )

    def _report_away(self, what: str, reason: str) -> None:
        """Log why the balancer is away: at once, once a minute, and whenever the reason changes."""
        if self._is_stopping or self._final_word is not None:
            return
        now, words = self._clock(), f"{what} at {self._url}: {' '.join(reason.split())}"
        if self._away is not None and self._away[0] == words and now < self._away[1] + AWAY_AGAIN:
            return
        self._away = (words, now)
        logger.warning("%s; the agent dials again until the balancer answers", words)
