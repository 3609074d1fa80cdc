"""What time does to the fleet: deadlines that come, and the end of everything.

Every event begins with what has come due before it, in the order that starts nothing in vain.
"""

from ....shared.errors import ShuttingDown
from ..deadlines import earliest
from ..decisions import Decision
from ..limits import Limits
from .fleet_views import FleetViews
from .membership import Membership
from .state import empty_state


class FleetClock(FleetViews):
    """Every method returns decisions, to be carried out in their order."""

    def __init__(
        self,
        limits: Limits,
        *,
        version: str = "",
        ticket_secret: bytes = b"",
        identity_secret: bytes = b"",
    ) -> None:
        super().__init__(empty_state(limits, version, ticket_secret, identity_secret))
        self._membership = Membership(self._state, self._steering)

    def next_deadline(self) -> float | None:
        """When to call `tick`. Nothing may be due then: deadlines move later."""
        if self._state.is_closed:
            return None
        return earliest(self._state.next_deadline(), self._steering.next_deadline())

    # ---- time, and the end of it

    def tick(self, now: float) -> list[Decision]:
        """Whatever is due at `now`.

        Agents are given up here only: when the timer fires, what they sent has been read, however
        long that took.
        """
        return self._due(now, is_timer=True)

    def drain(self, now: float, deadline: float) -> list[Decision]:
        """Accept nothing more; what has not ended by `deadline` ends then."""
        self._state.changes.advance()
        self._state.drained_at = deadline
        return [*self._due(now), *self._end_stranded(now)]

    def goodbye(self, now: float) -> list[Decision]:
        """End what has not ended, let every agent go and none in."""
        decisions = self.drain(now, now)
        self._state.is_closed = True
        return [*decisions, *self._membership.say_goodbye(now)]

    def _due(self, now: float, *, is_timer: bool = False) -> list[Decision]:
        """What has come due, in the order that starts nothing in vain. Every event begins so."""
        self._state.requests.dispatch.now = now
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        state = self._state
        if state.models.due(now):
            state.changes.advance()
        decisions = self._end_drained(now)
        agents = state.registry.due(now)
        silent = [agent for agent in agents if is_timer and agent.heartbeat.is_lost(now)]
        heard = [agent for agent in agents if not (is_timer and agent.heartbeat.is_lost(now))]
        self._membership.suspend(silent, now)
        decisions += state.requests.due(now)
        decisions += state.dispatcher.due(now)
        decisions += self._membership.dismiss_silent(silent, now)
        if decisions:
            state.changes.advance()
        for agent in heard:
            decisions += self._membership.attend(agent, now)
        decisions += self._steering.due(now)
        decisions += self._end_stranded(now)
        return [*decisions, *state.requests.waiting_room.tell(now, self._seconds_to_load(now))]

    def _end_drained(self, now: float) -> list[Decision]:
        """When the time for draining is over, everything ends."""
        if self._state.drained_at is None or now < self._state.drained_at:
            return []
        error = ShuttingDown("the balancer shut down before the request had ended")
        ended = self._state.requests.end_all(error, now)
        return [*ended, *self._state.dispatcher.end_all(error, now)]

    def _end_stranded(self, now: float) -> list[Decision]:
        """With draining, nobody waits whom no agent can serve."""
        if not self._state.is_draining:
            return []
        error = ShuttingDown("the balancer is shutting down and no agent can serve this")
        stranded = self._state.requests.end_stranded(error, now)
        return [*stranded, *self._state.dispatcher.end_stranded(error, now)]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._state.check_integrity()
        self._admission.check_integrity()
        self._steering.cordons.check_integrity()
