"""Agents join, change, pause, fall silent and leave.

Invariant: a link is in the registry, in dispatch and in the query dispatcher, or in none of them.
"""

from collections.abc import Iterable, Mapping

from ....shared.messages import (
    MAX_WORDS,
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Goodbye,
    Heartbeat,
    Hello,
    Reject,
    Status,
    Welcome,
)
from ....shared.reports.model_info import ModelInfo
from ....shared.reports.statistics import Statistics
from ...access.identity import Identity
from ..bad_messages import CODE, speaker_of
from ..decisions import Decision, Disconnect, LinkId, LogBad, ReadsLost, Send
from ..identities import IdentityOwner
from ..recorder import MoveReason
from ..registry import Agent
from ..view import Departure
from .state import FleetState
from .steering import Steering, may_need_order


class Membership:
    """Adds, changes and removes agents.

    Every method returns decisions, to be carried out in order.
    """

    def __init__(self, state: FleetState, steering: Steering) -> None:
        self._state = state
        self._steering = steering

    def joined(
        self, link: LinkId, hello: Hello, now: float, holder: Identity | None = None
    ) -> list[Decision]:
        """Welcome an agent, replacing its old link if there is one; or reject it."""
        state, said = self._state, hello
        hello = state.identities.known_as(said, holder)
        if (rejection := self._rejection(said, hello, holder, now)) is not None:
            return [Send(link, rejection), Disconnect(link, rejection.reason)]
        state.changes.advance()
        decisions = self._replace_old_link(hello, now)
        owner = state.identities.joined(link, said, holder)
        agent = state.registry.joined(link, hello, now, owner.breaker)
        agent.holder = holder
        agent.said = frozenset(id for id in (said.agent_id, said.host) if id is not None)
        state.registry.meets_twins(agent)
        state.device_past.joined(agent.host)
        agent.offence = state.bad_messages.of(speaker_of(holder, hello.agent_id), now)
        agent.is_cordoned = self._steering.cordons.joined(
            agent.host, hello.name, lambda host: bool(state.registry.on_host(host))
        )
        self._steering.look_soon(now)
        self._steering.reported(agent, now)
        self._know_model(agent, now)
        decisions.append(state.registry.message_to(link, self._welcome(hello, owner), now))
        decisions += state.requests.agent_joined(agent, now)
        return [*decisions, *state.dispatcher.agent_changed(agent, now)]

    def puts_off(self, agent: Agent, status: Status, now: float) -> bool:
        """Return whether to take `status` later, because it came too soon after others."""
        if agent.status is None and agent.may_change(now):
            return False
        self._state.registry.waits(agent, status)
        return True

    def changed(self, agent: Agent, status: Status, now: float) -> list[Decision]:
        """Update an agent whose slots or model changed, or that starts or stops accepting
        requests.
        """
        agent.status = None
        state = self._state
        if (excess := _excess(agent.holder, {}, status.model)) is not None:
            return self.dismiss(agent, excess, now)
        if may_need_order(agent, status):
            self._steering.look_soon(now)
        agent.changed(status)
        self._steering.reported(agent, now)
        if not agent.is_retired:
            self._know_model(agent, now)
        state.registry.touch(agent.link)
        decisions = state.requests.agent_changed(agent, now)
        return [*decisions, *state.dispatcher.agent_changed(agent, now)]

    def measured(self, agent: Agent, statistics: Statistics, now: float) -> None:
        """Record an agent's report of its engine's work, which counts for all balancers."""
        if agent.statistics is not None and _computed(statistics) > _computed(agent.statistics):
            agent.spoke_at = now
        agent.statistics = statistics
        if agent.num_at_work:
            agent.used_at = now
        self._state.device_past.measured(agent.host, statistics.devices, now)
        self._state.requests.measured(agent)
        self._state.registry.touch(agent.link)

    def dismiss(
        self, agent: Agent, reason: str, now: float, *, loss: MoveReason = "lost"
    ) -> list[Decision]:
        """Disconnect an agent, and treat it as lost."""
        return [Disconnect(agent.link, reason), *self.lost(agent, now, loss)]

    def broke(
        self, agent: Agent, reason: str, now: float, *, error: Exception | None, is_ours: bool
    ) -> list[Decision]:
        """Disconnect an agent for a pause, after an impossible message or an internal error."""
        speaker = speaker_of(agent.holder, agent.hello.agent_id)
        self._state.bad_messages.came_from(speaker, reason, now)
        log = LogBad(agent.name, reason, error, is_ours)
        return [log, *self.dismiss(agent, f"{CODE}: {reason}", now)]

    def lost(
        self,
        agent: Agent,
        now: float,
        loss: MoveReason = "lost",
        *,
        hung_up: bool = False,
        has_crashed: bool = False,
    ) -> list[Decision]:
        """Remove an agent whose link is closed: its requests move or end.

        If the agent `hung_up`, it still lives.

        `has_crashed`: the link broke, so the agent's process may have ended.
        """
        state = self._state
        state.changes.advance()
        state.registry.left(agent.link, _departure(agent, loss, hung_up=hung_up), now)
        if not state.registry.on_host(agent.host):
            state.device_past.left(agent.host, now)
        if not state.registry.links_of(agent.hello.agent_id):
            state.identities.left(agent.hello.agent_id, now)
        decisions = self._reads_lost(agent)
        self._steering.left(agent)
        self._steering.look_soon(now)
        state.models.agent_left(agent.link, now)
        decisions += state.requests.agent_left(
            agent, loss, now, hung_up=hung_up, has_crashed=has_crashed
        )
        decisions += state.dispatcher.agent_left(
            agent, now, hung_up=hung_up, has_crashed=has_crashed
        )
        return decisions

    def say_goodbye(self, now: float) -> list[Decision]:
        """Disconnect every agent."""
        decisions: list[Decision] = []
        for agent in list(self._state.registry):
            decisions.append(self._state.registry.message_to(agent.link, Goodbye(), now))
            decisions += self.dismiss(agent, "the balancer is shutting down", now)
        return decisions

    # ---- time

    def suspend(self, agents: Iterable[Agent], now: float) -> None:
        """Give no requests to these agents, which are about to be dismissed."""
        for agent in agents:
            agent.is_accepting = False
            self._state.requests.agent_suspended(agent)
            self._state.dispatcher.agent_changed(agent, now)

    def dismiss_silent(self, agents: Iterable[Agent], now: float) -> list[Decision]:
        """Treat agents as lost that have been silent for too long."""
        decisions: list[Decision] = []
        for agent in agents:
            reason = f"silent for {self._state.limits.heartbeat_timeout:g} s"
            decisions += self.dismiss(agent, reason, now, loss="silent")
        return decisions

    def attend(self, agent: Agent, now: float) -> list[Decision]:
        """Give requests to an agent again after its pause, and send a heartbeat if one is due."""
        state = self._state
        decisions = [*self._end_rest(agent, now), *self._state.requests.probed(agent, now)]
        if agent.status is not None and now >= agent.changes_at:
            agent.may_change(now)
            decisions += self.changed(agent, agent.status, now)
            state.changes.advance()
            if state.registry.get(agent.link) is None:
                return decisions
        agent.heartbeat.check(now)
        if agent.heartbeat.is_due(now):
            decisions.append(state.registry.message_to(agent.link, Heartbeat(), now))
        state.registry.arm(agent)
        return decisions

    # ---- inside

    def _know_model(self, agent: Agent, now: float) -> None:
        self._state.models.agent_changed(
            agent.link,
            agent.model,
            agent.loading,
            now,
            abilities=agent.abilities,
            failure=agent.failure,
        )

    def _end_rest(self, agent: Agent, now: float) -> list[Decision]:
        if agent.rested_at is None or now < agent.rested_at:
            return []
        agent.rested_at = None
        decisions = self._state.requests.agent_rested(agent, now)
        decisions += self._state.dispatcher.agent_changed(agent, now)
        if decisions:
            self._state.changes.advance()
        return decisions

    def _replace_old_link(self, hello: Hello, now: float) -> list[Decision]:
        old = self._state.registry.link_of(hello.agent_id)
        if old is None:
            return []
        agent = self._state.registry[old]
        if hello.takes_over:
            return self._retire(agent, now)
        return self.dismiss(agent, "the agent has dialled again", now)

    def _retire(self, agent: Agent, now: float) -> list[Decision]:
        """Give the agent no new requests; it finishes its requests and leaves."""
        state = self._state
        state.registry.retire(agent)
        state.models.agent_left(agent.link, now)
        decisions = [*self._reads_lost(agent), *state.requests.agent_changed(agent, now)]
        return [*decisions, *state.dispatcher.agent_changed(agent, now)]

    def _reads_lost(self, agent: Agent) -> list[Decision]:
        """End reads over this link without an answer. Another process of the agent may have a
        link.
        """
        readers = self._state.open_reads
        ids = tuple(id for id, link in readers.items() if link == agent.link)
        for id in ids:
            del readers[id]
        return [ReadsLost(ids)] if ids else []

    def _rejection(
        self, said: Hello, hello: Hello, holder: Identity | None, now: float
    ) -> Reject | None:
        if self._state.is_closed:
            return Reject(reason="the balancer is shutting down", retry=True)
        offence = self._state.bad_messages.of(speaker_of(holder, hello.agent_id), now)
        if offence is not None and now < offence.until:
            pause = f"dial again in {offence.until - now:.1f} s"
            return Reject(reason=f"{CODE}: {offence.reason}; {pause}"[:MAX_WORDS], retry=True)
        if not OLDEST_PROTOCOL <= hello.protocol <= PROTOCOL_VERSION:
            spoken = (
                f"the balancer speaks protocols {OLDEST_PROTOCOL} to {PROTOCOL_VERSION}, "
                f"the agent {hello.protocol}"
            )
            return Reject(
                reason=(f"{spoken}: install the same version on agent and balancer"), retry=False
            )
        if (excess := _excess(holder, hello.labels, hello.model)) is not None:
            return Reject(reason=excess, retry=False)
        if (refusal := self._state.identities.refusal(said, holder, now)) is not None:
            return Reject(reason=refusal, retry=True, code="identity_taken")
        return None

    def _welcome(self, hello: Hello, owner: IdentityOwner) -> Welcome:
        limits = self._state.limits
        return Welcome(
            protocol=hello.protocol,
            version=self._state.version,
            heartbeat_interval=limits.heartbeat_interval,
            heartbeat_timeout=limits.heartbeat_timeout,
            secret=owner.secret,
        )


def _departure(agent: Agent, loss: MoveReason, *, hung_up: bool) -> Departure:
    """Return why an agent left, in words for operators."""
    if agent.is_cordoned:
        return "drained"
    is_orderly = loss == "lost" and (hung_up or not agent.is_accepting)
    return "stopped" if is_orderly else "lost"


def _computed(statistics: Statistics) -> int:
    return statistics.computed_tokens + statistics.completion_tokens


def _excess(
    holder: Identity | None, labels: Mapping[str, str], model: ModelInfo | None
) -> str | None:
    """Return why an agent with this key may not have these labels or this model.

    Returns `None` if it may have them.
    """
    if holder is None:
        return None
    return holder.excess(labels, [] if model is None else [model.name])
