"""The state that requests and queries have in common, and the list of all that have not ended.

Invariants: `expires_at` never changes; the time in the queue is the sum over all waits.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol

from ...shared.errors import QueueTimeout, RequestError
from ...shared.inference import AgentId, RequestId
from .caller import Caller
from .change_log import ChangeLog
from .deadlines import Deadlines
from .limits import Limits
from .view import RequestView


@dataclass(frozen=True, slots=True)
class NotServed:
    """The reason why no agent serves a model, and when an agent will serve the model.

    `progress` describes the loading of the model in words. `seconds_left` is `None` if unknown.
    """

    reason: str
    seconds_left: float | None = None
    progress: str = ""


WhyNotServed = Callable[[str | None], NotServed]
"""Returns why no agent serves the model of this name; `None` stands for any model."""


class Asked(Protocol):
    """A request or query as the client sent it."""

    @property
    def model(self) -> str | None:
        """The requested model, or `None` for any model."""


class Lifecycle:
    """The state that requests and queries have in common.

    `agent` is the name of the present or last agent. `model` is the model of this agent, or else
    the requested model. `Deadlines` sets `armed_at`.
    """

    __slots__ = (
        "_limits",
        "_queued_at",
        "_waited",
        "accepted_at",
        "account",
        "agent",
        "armed_at",
        "asked",
        "caller",
        "expires_at",
        "id",
        "model",
        "num_agents_lost",
    )

    def __init__(
        self, id: RequestId, asked: Asked, limits: Limits, now: float, *, caller: Caller
    ) -> None:
        self.id = id
        self.asked = asked
        self.caller = caller
        self.account = caller.account
        self.accepted_at = now
        self.expires_at = now + limits.request_timeout
        self.agent: str | None = None
        self.model = asked.model
        self.num_agents_lost = 0
        self.armed_at: float | None = None
        self._limits = limits
        self._waited = 0.0
        self._queued_at: float | None = now

    @property
    def deadline(self) -> float:
        """The time of the next check."""
        return min(self._queue_deadline, self.expires_at)

    @property
    def has_streamed(self) -> bool:
        """Whether the client has received a part of the answer."""
        return False

    @property
    def is_waiting(self) -> bool:
        """Whether the request waits for an agent."""
        return self._queued_at is not None

    def view(self, agent: AgentId | None, now: float) -> RequestView:
        """Return the view of the request for operators; `agent` is the id of its agent."""
        return RequestView(
            id=self.id,
            state="queued" if self.is_waiting else "assigned",
            model=self.asked.model,
            agent=agent,
            waited_seconds=self.waited(now),
            age_seconds=now - self.accepted_at,
            num_tokens=0,
            priority=0,
            caller=self.caller.name,
        )

    def waited(self, now: float) -> float:
        """Return the seconds for which the request has had no agent."""
        return self._waited + (0.0 if self._queued_at is None else now - self._queued_at)

    def total_ms(self, now: float) -> float:
        """Return the milliseconds since the request was accepted."""
        return (now - self.accepted_at) * 1000

    def join_queue(self, now: float) -> None:
        """Put the request into the queue for the rest of its time in the queue."""
        self._queued_at = now

    def leave_queue(self, agent: str, now: float) -> None:
        """Record that `agent` took the request or a part of the query."""
        self.agent = agent
        self._waited = self.waited(now)
        self._queued_at = None

    def _queue_timeout(self, wanted: str, lack: NotServed | None) -> QueueTimeout:
        """Return the error of a request that waited too long.

        `wanted` names what the request waited for. `lack` is given if no agent serves the model.
        """
        seconds = f"{self._limits.buffered_request_timeout:g} s"
        if lack is None:
            return QueueTimeout(f"{wanted} for {seconds}")
        served = "a model" if self.model is None else f"the model `{self.model[:200]}`"
        progress = f": {lack.progress}" if lack.progress else ""
        if lack.progress and lack.seconds_left is not None:
            progress += f", about {ceil(lack.seconds_left)} s are left"
        return QueueTimeout(f"no agent served {served} for {seconds}: {lack.reason}{progress}")

    @property
    def _queue_deadline(self) -> float:
        """Return when the time in the queue ends; never while an agent has the request."""
        if self._queued_at is None:
            return inf
        return self._queued_at + (self._limits.buffered_request_timeout - self._waited)


class Lives:
    """All accepted requests and queries that have not ended, by id, oldest first.

    Invariant: each of them is armed for its deadline.
    """

    def __init__(self, changes: ChangeLog) -> None:
        self._changes = changes
        self._lives: dict[RequestId, Lifecycle] = {}
        self._deadlines: Deadlines[Lifecycle] = Deadlines()
        self.get: Callable[[RequestId], Lifecycle | None] = self._lives.get
        """The request or query with an id, or `None`. Each token calls this attribute."""
        self.arm = self._deadlines.arm
        self.next_deadline = self._deadlines.next
        self.due = self._deadlines.due

    def __len__(self) -> int:
        return len(self._lives)

    def __contains__(self, id: object) -> bool:
        return id in self._lives

    def __iter__(self) -> Iterator[Lifecycle]:
        return iter(self._lives.values())

    def add(self, life: Lifecycle) -> None:
        """Add an accepted request or query. The caller must then call `arm`."""
        self._lives[life.id] = life
        self._changes.advance()

    def remove(self, life: Lifecycle) -> None:
        """Remove a request or query that has ended."""
        del self._lives[life.id]
        self._deadlines.disarm(life)
        self._changes.advance()

    def refused(self, errors: Mapping[str, RequestError]) -> dict[Lifecycle, RequestError]:
        """Return the waiting requests and queries that must end with an error from `errors`.

        `errors` has an error for each model that cannot be served. A request whose answer has
        begun keeps waiting if the error says that a later attempt may help.
        """
        found = {}
        for each in self:
            error = errors.get(each.asked.model or "") if each.is_waiting else None
            if error is not None and not (error.retryable and each.has_streamed):
                found[each] = error
        return found

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self._deadlines.check_integrity()
        for each in self:
            if each.armed_at is None:
                raise RuntimeError(f"{each.id} has no deadline, or has ended")
