"""One balancer's session with this agent: messages and results in, decisions out.

Invariants: requests and queries exist only on a live connection, except for saves. After `Close`
or `disconnected` the session is offline and empty until `connected`.

Every method returns the decisions about the event, in order. A session outlives its connections.

The session offers its newest protocol version first. A balancer that rejects the version may be
older, so the next connections offer older versions until one is accepted. After that the newest
version is offered again, since the balancer may have been upgraded.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, assert_never

from pydantic import ValidationError

from ...shared.errors import Cancelled, RequestError, ShuttingDown, shortened, to_wire
from ...shared.framing.heartbeat import HeartbeatMonitor
from ...shared.inference import MAX_COUNT, RequestId
from ...shared.messages import (
    MAX_ISSUES,
    MAX_WORDS,
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Ask,
    Busy,
    Cancel,
    Evicted,
    FitRead,
    FromAgent,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Hello,
    Issue,
    Item,
    Lend,
    LogRead,
    Output,
    ReadFit,
    ReadLog,
    Refused,
    Reject,
    Reply,
    Start,
    Status,
    Welcome,
    Withdraw,
    decode_from_balancer,
    for_version,
)
from ...shared.models.assignments import MAX_BYTES, Assign, Reload
from ...shared.queries import Result
from ...shared.reports.log_lines import LogLines
from ...shared.reports.model_info import MAX_ARCHITECTURE, ModelInfo
from ...shared.reports.statistics import Statistics
from ...shared.since import without_newer
from ...shared.validation import invalid
from ..generation.port import QueryId
from ..sequence_id import SequenceId
from .codec import outputs
from .decisions import (
    Allow,
    Close,
    Decision,
    GiveUp,
    KeepSecret,
    MarkConnected,
    Obey,
    Send,
    SendLog,
)
from .queries import OpenQueries, declined
from .requests import Requests

HANDSHAKE_TIMEOUT = 10.0
"""Maximum wait for the answer to `Hello`, in seconds."""

MAX_OPEN_FITS = 4
"""Maximum open questions of one balancer about how this host would load a model."""

_FITS_ARE_OPEN = Issue(
    code="busy",
    message=f"{MAX_OPEN_FITS} questions of this kind are already open here",
    hint="ask again when one of them is answered",
)

MAX_LOG_WAITS = 64
"""Maximum waiting log reads of one balancer; further reads are answered at once, without lines."""

LAST_WORDS = 1.0
"""Maximum wait for the ends of requests that have to fail, in seconds."""

PROTOCOLS = range(OLDEST_PROTOCOL, PROTOCOL_VERSION + 1)
"""The protocol versions that an agent speaks."""


class Session:
    """One balancer's session. `requests` and `queries` belong to this balancer alone."""

    def __init__(
        self,
        *,
        hello: Hello,
        status: Status,
        requests: Requests,
        queries: OpenQueries,
        protocols: range = PROTOCOLS,
    ) -> None:
        """Begin offline. `status` is sent after the welcome if it contains more than `hello`."""
        self._hello = self._greeting = hello
        self._status = status
        self._requests = requests
        self._queries = queries
        self._log_waits: dict[RequestId, int] = {}
        """The waiting log reads, each with the number of the last line that the balancer has."""
        self._open_fits: set[RequestId] = set()
        """The open questions about how the host would load a model."""
        self._statistics: Statistics | None = None
        self._protocols = protocols
        self._protocol = protocols[-1]
        """The protocol version that is offered, and then spoken."""
        self._state: Literal["offline", "greeting", "live"] = "offline"
        self._heartbeat: HeartbeatMonitor | None = None
        self._drain_deadline: float | None = None
        self._failure: str | None = None
        """Why running requests have to fail; `None` if they do not."""

    @property
    def is_live(self) -> bool:
        """Return whether the balancer has sent `Welcome`."""
        return self._state == "live"

    @property
    def is_offline(self) -> bool:
        """Return whether there is no connection, or the session has closed the connection."""
        return self._state == "offline"

    @property
    def num_active(self) -> int:
        """The number of requests that hold a slot, including those that are only being saved."""
        return len(self._requests)

    # ---- the connection

    def connected(self, now: float, secret: str | None = None) -> list[Decision]:
        """Begin a session on a new connection; `secret` was given by this balancer earlier."""
        self._state = "greeting"
        self._heartbeat = HeartbeatMonitor(now, interval=float("inf"), timeout=HANDSHAKE_TIMEOUT)
        hello = bounded_hello(replace(self._hello, protocol=self._protocol, secret=secret))
        self._greeting = without_newer(hello, self._protocols[0])  # so that each can read it
        return [self._send(self._greeting, now)]

    def disconnected(self) -> list[Decision]:
        """Drop all requests and queries, because the connection is gone."""
        if self.is_live:
            self._protocol = self._protocols[-1]
        self._state = "offline"
        self._heartbeat = None
        self._log_waits.clear()
        self._open_fits.clear()
        return [*self._requests.discard_all(), *self._queries.withdraw_all()]

    def next_deadline(self) -> float | None:
        """Return the latest time to call `tick`; `None` if there is none."""
        if self._heartbeat is None:
            return None
        deadline = self._heartbeat.next_deadline()
        return deadline if self._drain_deadline is None else min(deadline, self._drain_deadline)

    def tick(self, now: float) -> list[Decision]:
        """Check the deadlines."""
        if self._heartbeat is None:
            return []
        if self._heartbeat.is_lost(now):
            return self._leave(f"the balancer was silent for {self._heartbeat.timeout:g} s")
        if self._drain_deadline is not None and now >= self._drain_deadline:
            if self._failure is not None:
                return self._leave(self._failure)
            return self._fail(ShuttingDown("the agent stopped before the answer was complete"), now)
        self._heartbeat.check(now)
        return [self._send(Heartbeat(), now)] if self._heartbeat.is_due(now) else []

    # ---- messages from the balancer

    def read(self, frame: str | bytes, now: float) -> list[Decision]:
        """Handle a frame from the balancer. An invalid frame ends the connection."""
        try:
            message = decode_from_balancer(frame)
        except ValidationError as error:
            finding = invalid(error, frame).message
            return [] if self.is_offline else self._leave(f"the balancer's frame: {finding}")
        return self.received(message, now)

    def received(self, message: FromBalancer, now: float) -> list[Decision]:
        """Handle a message from the balancer; ignored if the connection has ended."""
        if self._heartbeat is None:
            return []
        self._heartbeat.heard(now)
        match message:
            case Welcome():
                return self._welcomed(message, now)
            case Reject(reason=reason, retry=retry):
                return self._rejected(reason, retry)
            case Heartbeat() | Goodbye():
                # After a goodbye the balancer lets running requests finish and closes by itself.
                return []
            case _ if not self.is_live:
                return self._leave(f"the balancer sent `{message.type}` before `welcome`")
            case Start():
                return self._started(message, now)
            case Cancel(id=id, is_unsent=True) if id not in self._requests:
                return [self._send(Output(items=(_cancelled(id),)), now)]
            case Cancel(id=id):
                return [*self._requests.cancel(id)]
            case Ask():
                return self._asked(message, now)
            case Withdraw(id=id):
                self._log_waits.pop(id, None)
                self._open_fits.discard(id)
                return self._settle([*self._queries.withdraw(id)])
            case Assign() | Reload():
                return [Obey(message)]
            case Lend(ticket=ticket, seconds=seconds):
                return [Allow(ticket, seconds)]
            case ReadLog(id=id, after=after, wait=wait):
                if wait and len(self._log_waits) < MAX_LOG_WAITS:
                    self._log_waits[id] = after
                return [SendLog(id, after)]
            case ReadFit():
                return self._fit_asked(message, now)
            case _:
                assert_never(message)

    def _welcomed(self, message: Welcome, now: float) -> list[Decision]:
        if self.is_live:
            return self._leave("the balancer sent `welcome` twice")
        if message.protocol != self._protocol:
            return self._give_up(
                f"the balancer speaks version {message.protocol} of the agent protocol and this "
                f"agent version {self._protocol}; install the same release on both"
            )
        self._state = "live"
        self._hello = replace(self._hello, takes_over=False)  # no other link from now on
        self._heartbeat = HeartbeatMonitor(
            now, interval=message.heartbeat_interval, timeout=message.heartbeat_timeout
        )
        decisions: list[Decision] = [] if message.secret is None else [KeepSecret(message.secret)]
        decisions.append(MarkConnected())
        if self._says_more():
            decisions.append(self._send(self._status, now))
        if self._statistics is not None:
            decisions.append(self._send(self._statistics, now))
        return decisions

    def _says_more(self) -> bool:
        """Return whether the status contains more than the hello of this connection."""
        hello, status = self._greeting, bounded_status(self._status)
        return bool(status.issues) or _in_both(status) != _in_both(hello)

    def _rejected(self, reason: str, retry: bool) -> list[Decision]:
        if retry:
            return self._leave(reason)
        if self._protocol == self._protocols[0]:
            return self._give_up(reason)
        self._protocol -= 1
        return self._leave(reason)

    def _started(self, start: Start, now: float) -> list[Decision]:
        if start.id in self._requests:
            return self._leave(f"the balancer started request {start.id} twice")
        is_leaving = self._drain_deadline is not None
        taken = self._requests.turn_away(start.id) if is_leaving else self._requests.accept(start)
        return [self._send(Output(items=(taken,)), now) if isinstance(taken, Busy) else taken]

    def _asked(self, ask: Ask, now: float) -> list[Decision]:
        if ask.id in self._queries:
            return self._leave(f"the balancer asked query {ask.id} twice")
        if self._drain_deadline is not None:
            return [self._send(declined(ask.id, ShuttingDown("the agent is shutting down")), now)]
        taken = self._queries.accept(ask)
        return [self._send(taken, now) if isinstance(taken, Reply) else taken]

    def _fit_asked(self, asked: ReadFit, now: float) -> list[Decision]:
        if len(self._open_fits) >= MAX_OPEN_FITS:
            return [self._send(FitRead(id=asked.id, issue=_FITS_ARE_OPEN), now)]
        self._open_fits.add(asked.id)
        return [Obey(asked)]

    def heard(self, now: float) -> None:
        """Note that a part of a message arrived."""
        if self._heartbeat is not None:
            self._heartbeat.heard(now)

    # ---- events of requests and queries

    def produced(
        self, items: tuple[Item, ...], released: Iterable[SequenceId], now: float
    ) -> list[Decision]:
        """Send the items that requests produced, and free the slots of `released` sequences."""
        self._requests.produced(items, released)
        return self._settle([self._send(each, now) for each in outputs(items)]) if items else []

    def unsendable(self, id: RequestId) -> list[Decision]:
        """End a request whose items could not be encoded; the balancer got an error instead."""
        return self._settle([*self._requests.discard(id)])

    def answered(self, query: QueryId, result: Result, now: float) -> list[Decision]:
        """Send the result of a query; ignored if the query was withdrawn."""
        replies: list[Decision] = [
            self._send(reply, now) for reply in self._queries.answered(query, result)
        ]
        return self._settle(replies) if replies else []

    def read_own_log(self, id: RequestId, lines: LogLines, now: float) -> list[Decision]:
        """Send the log lines that the balancer asked for. Without lines, a waiting read keeps
        waiting.
        """
        if not self.is_live or (not lines and id in self._log_waits):
            return []
        self._log_waits.pop(id, None)
        return [self._send(LogRead(id=id, lines=lines), now)]

    def fit_found(self, read: FitRead, now: float) -> list[Decision]:
        """Send how the host would load a model, if this balancer still asks about the model."""
        if read.id not in self._open_fits:
            return []
        self._open_fits.remove(read.id)
        return [self._send(read, now)]

    @property
    def awaits_log(self) -> bool:
        """Return whether `log_grew` should be called. Thread-safe."""
        return len(self._log_waits) > 0

    def log_grew(self) -> list[Decision]:
        """Read the log for all waiting reads, because it has new lines."""
        return [SendLog(id, after) for id, after in self._log_waits.items()]

    def slots_changed(self, now: float) -> list[Decision]:
        """Send the status if a slot became free for a balancer that was answered `Busy`."""
        if self._drain_deadline is not None or not self._requests.has_room_again():
            return []
        return [self._send(self._status, now)]

    def status_changed(self, status: Status, now: float) -> list[Decision]:
        """Note and send the agent's new status; later connections begin with it."""
        before, self._status = self._status, replace(status, accepting=self._drain_deadline is None)
        self._hello = replace(
            self._hello,
            slots=status.slots,
            model=status.model,
            work=status.work,
            peer=status.peer,
            disk=status.disk,
        )
        is_new = self._status != before
        return [self._send(self._status, now)] if is_new and self.is_live else []

    def host_changed(self, num_places: int) -> None:
        """Note that this host runs `num_places` agents. Later connections begin with that
        number.
        """
        self._hello = replace(self._hello, num_places=num_places)

    def report(self, statistics: Statistics, now: float) -> list[Decision]:
        """Send new statistics of the engine now, or after `Welcome` if the session is not live."""
        self._statistics = statistics
        return [self._send(statistics, now)] if self.is_live else []

    def evicted(self, evicted: Evicted, now: float) -> list[Decision]:
        """Report prefixes that left the cache.

        A balancer without a connection needs no report: its next session starts without prefixes.
        """
        return [self._send(evicted, now)] if self.is_live else []

    # ---- the end

    def drain(self, now: float, deadline: float) -> list[Decision]:
        """Accept no new requests, let running ones continue until `deadline`, then leave."""
        self._drain_deadline = deadline
        self._status = replace(self._status, accepting=False)
        if not self.is_live:
            return [] if self.is_offline else self._leave("the agent is shutting down")
        return self._settle([self._send(self._status, now)])

    def engine_stopped(self, reason: str) -> list[Decision]:
        """Leave at once, as if the process had crashed, because no request can continue here.

        The requests get no end, so the balancer moves them to other agents: they are not at fault.
        """
        return [] if self.is_offline else [*self.disconnected(), Close(reason, is_failure=True)]

    def _fail(self, error: RequestError, now: float) -> list[Decision]:
        """Answer everything with `error`, then leave, because the time for draining is over."""
        self._failure = error.message
        self._drain_deadline = now + LAST_WORDS
        replies = [self._send(reply, now) for reply in self._queries.fail_all(error)]
        return self._settle(
            [*replies, *self._queries.withdraw_all(), *self._requests.fail_all(error)]
        )

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        self._requests.check_integrity()
        self._queries.check_integrity()
        if self._is_awaited and not self.is_live:
            raise RuntimeError("requests are held without a live connection")
        if (self._heartbeat is None) != self.is_offline:
            raise RuntimeError("a heartbeat monitor without a connection, or the other way round")

    @property
    def _is_awaited(self) -> bool:
        return self._requests.is_awaited or len(self._queries) > 0

    def _settle(self, decisions: list[Decision]) -> list[Decision]:
        """Return `decisions`. A draining agent also leaves once no request is awaited any more."""
        if self._drain_deadline is None or self._is_awaited or self.is_offline:
            return decisions
        return decisions + self._leave(self._failure or "the agent is shutting down")

    def _leave(self, reason: str) -> list[Decision]:
        return [*self.disconnected(), Close(reason)]

    def _give_up(self, reason: str) -> list[Decision]:
        return [*self.disconnected(), GiveUp(reason)]

    def _send(self, message: FromAgent, now: float) -> Send:
        if self._heartbeat is not None:
            self._heartbeat.sent(now)
        if isinstance(message, Status):
            message = bounded_status(message)
        return Send(for_version(message, self._protocol))


def _cancelled(id: RequestId) -> Refused:
    return Refused(id=id, error=to_wire(Cancelled("cancelled before it started")))


def _in_both(said: Hello | Status) -> tuple[object, ...]:
    """Return the fields that a hello and a status have in common."""
    return said.slots, said.model, said.work, said.peer, said.disk


def bounded_hello(hello: Hello) -> Hello:
    """Return `hello` with bounded models."""
    return replace(hello, model=_bounded_model(hello.model), loading=_bounded_model(hello.loading))


def bounded_status(status: Status) -> Status:
    """Return `status` with a bounded model and bounded issues."""
    issues = tuple(map(_bounded_issue, status.issues[:MAX_ISSUES]))
    return replace(status, model=_bounded_model(status.model), issues=issues)


def _bounded_model(model: ModelInfo | None) -> ModelInfo | None:
    if model is None:
        return None
    return replace(
        model,
        architecture=shortened(model.architecture, MAX_ARCHITECTURE),
        parameters=min(model.parameters, MAX_BYTES),
        size_bytes=min(model.size_bytes, MAX_BYTES),
        context_size=min(model.context_size, MAX_COUNT),
        longest_token=min(model.longest_token, MAX_COUNT),
    )


def _bounded_issue(issue: Issue) -> Issue:
    message, hint = shortened(issue.message, MAX_WORDS), shortened(issue.hint, MAX_WORDS)
    return replace(issue, message=message, hint=hint)
