"""Circuit breakers, which limit how many requests an agent may have at once.

A new agent may have few requests at once. Each answer that begins doubles this limit, and each
request without an answer, or with a wrong answer, halves it. At zero the circuit is open: the
agent gets one probe request a minute until an answer begins.

An agent that no other agent can replace may use all of its slots, because a limit would help no
request. Times are passed as `now`, in seconds of the core's clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from ...shared.messages import Issue
from .decisions import LinkId
from .limits import FIRST_SLOTS as FIRST_SLOTS

PROBE_PAUSE = 60.0
"""The seconds between two probes of an agent that does not answer."""

NO_LIMIT = 2**31
"""A limit that is larger than any agent's number of slots."""

UNRESPONSIVE = "unresponsive"


@dataclass(slots=True, eq=False)
class CircuitBreaker:
    """The circuit breaker of one agent, shared by all its connections.

    - `earned`: the maximum requests at once; 0 while the circuit is open.
    - `probe_at`: the time of the next probe. `is_probed` is true until the probe's outcome is
      known.
    - `is_needed`: no other agent that answers serves the same model.
    - `has_answered`: the agent has begun at least one answer.
    """

    earned: int = FIRST_SLOTS
    probe_at: float = inf
    is_probed: bool = False
    is_needed: bool = False
    has_answered: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open, so that the agent gets only probes."""
        return self.earned == 0

    @property
    def allowed(self) -> int:
        """The maximum requests at once, if the agent has as many slots."""
        return NO_LIMIT if self.is_needed else self.earned or int(self.is_probed)

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The issues that operators see."""
        if not self.is_open:
            return ()
        return (
            Issue(
                code=UNRESPONSIVE,
                message=(
                    "the agent does not answer its requests. If other agents serve its model, "
                    f"it gets one request every {PROBE_PAUSE:g} s until it answers"
                ),
                hint=(
                    "read the agent's log; if its engine or its upstream server hangs, restart "
                    "it; if its prompts take long, raise --first-token-timeout"
                ),
            ),
        )

    def answered(self, slots: int, num: int = 1) -> bool:
        """Count `num` answers that have begun on an agent with `slots`.

        Returns whether the limit has grown.
        """
        self.has_answered = True
        if self.earned and self.earned >= slots:
            return False
        for _ in range(num):
            if self.earned < slots or not self.earned:
                self.earned = 2 * max(self.earned, 1)
        self.probe_at, self.is_probed = inf, False
        return True

    def failed(self, now: float) -> None:
        """Count a request that the agent did not answer, or answered wrongly."""
        self.earned //= 2
        if self.is_open:
            self.probe_at, self.is_probed = now + PROBE_PAUSE, False

    def probe(self, now: float) -> bool:
        """Begin a probe if the pause is over. Returns whether a probe may be sent."""
        if self.is_probed or now < self.probe_at:
            return False
        self.probe_at, self.is_probed = inf, True
        return True


@dataclass(slots=True)
class _Group:
    """The agents of one model, by circuit, and the needed agents among them."""

    closed: set[LinkId] = field(default_factory=set)
    open: set[LinkId] = field(default_factory=set)
    needed: frozenset[LinkId] = frozenset()


class Needed:
    """Finds the needed agents: agents of a model that no other answering agent serves.

    A change takes constant time unless none of the model's agents answers.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._models: dict[LinkId, str] = {}

    def serves(self, link: LinkId, model: str | None, *, is_open: bool) -> dict[LinkId, bool]:
        """Record an agent's model and circuit. Returns the agents whose need has changed."""
        before = self._models.pop(link, None)
        if before is not None:
            self._groups[before].closed.discard(link)
            self._groups[before].open.discard(link)
        if model is not None:
            self._models[link] = model
            group = self._groups.setdefault(model, _Group())
            (group.open if is_open else group.closed).add(link)
        changed = {link: False} if before is not None and model != before else {}
        for name in dict.fromkeys(each for each in (before, model) if each is not None):
            changed |= self._look(name)
        return changed

    def _look(self, model: str) -> dict[LinkId, bool]:
        group = self._groups[model]
        needed: Iterable[LinkId] = ()
        if len(group.closed) <= 1:
            needed = group.closed or group.open
        before, group.needed = group.needed, frozenset(needed)
        if not group.closed and not group.open:
            del self._groups[model]
        gone = dict.fromkeys(before - group.needed, False)
        return gone | dict.fromkeys(group.needed - before, True)
