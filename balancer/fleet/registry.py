"""The connected agents, with their last reports and the times of their last messages.

Invariants: each agent id has one link, the newest; no link is armed for a time later than its
deadline.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from ...shared.framing.heartbeat import HeartbeatMonitor
from ...shared.inference import AgentId
from ...shared.inference.abilities import ABILITIES, Ability
from ...shared.inference.adapters import adapted_name
from ...shared.inference.prefix_peers import Peer
from ...shared.messages import MAX_WORDS, FromBalancer, Hello, Issue, Status, for_version
from ...shared.models.assignments import Work
from ...shared.reports.model_info import ModelInfo
from ...shared.reports.statistics import Statistics
from ..access.identity import Identity
from .bad_messages import Offence
from .change_log import ChangeLog
from .circuit_breaker import CircuitBreaker
from .deadlines import Deadlines
from .decisions import LinkId, Send
from .identities import key_of
from .limits import Limits
from .view import AgentState, AgentView, Departure, ServedView, SlotsView

STATUSES_AT_ONCE = 5
STATUSES_A_SECOND = 5.0
"""The maximum statuses of an agent that are used in a second. Only the last other one waits."""

SERVER_GONE = frozenset({"upstream_unreachable", "upstream_key", "upstream_model"})
"""The codes of issues that mean that an agent's upstream server cannot be used."""

MAX_DEPARTURES = 4096
"""The maximum number of remembered departures of agents."""

RETURNED = 10.0
"""The seconds within which an agent may return, after loading a model, as if it never left."""

BUSY_PAUSE = 0.5
"""The maximum seconds until a full agent is tried again."""


@dataclass(slots=True, eq=False)
class Agent:
    """One connected agent. Times are in seconds of the core's clock.

    - `rested_at`: the end of the agent's pause, if it is full.
    - `joined_at`: the time of its first connection, even if it has loaded other models since.
    - `holder`: the holder of its access key.
    - `used_at`: the time when a request last started or ended.
    - `spoke_at`: the time when its engine last sent a part of an answer or reported computing.
    - `peer`: how it lends prefixes to other agents; `None` if it lends none.
    - `disk`: identifies its disk cache, which outlives the agent.
    - `offence`: why an earlier connection of this agent was closed.
    - `status`: a status that came too soon and is not used yet.
    - `breaker`: the circuit breaker, which all links of the agent share.
    - `said`: the ids that it sent for itself and its host.
    - `twins`: the names of agents with other keys that sent one of these ids.

    A cordoned agent gets no new requests, because an operator asked for this. A retired agent
    finishes its requests, because another process of the same agent has taken over.
    """

    link: LinkId
    hello: Hello
    slots: int
    model: ModelInfo | None
    joined_at: float
    heartbeat: HeartbeatMonitor
    is_accepting: bool = True
    issues: tuple[Issue, ...] = ()
    statistics: Statistics | None = None
    num_tokens: int = 0
    rested_at: float | None = None
    used_at: float = -inf
    work: Work | None = None
    is_cordoned: bool = False
    is_retired: bool = False
    holder: Identity | None = None
    peer: Peer | None = None
    disk: str | None = None
    offence: Offence | None = None
    status: Status | None = None
    num_statuses: float = 0.0
    status_at: float = -inf
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    spoke_at: float = -inf
    said: frozenset[AgentId] = frozenset()
    twins: dict[LinkId, str] = field(default_factory=dict)
    armed_at: float | None = None

    @property
    def deadline(self) -> float:
        """The time of the next check: for a heartbeat, a pause that ends, or a silent agent."""
        deadline = min(self.heartbeat.next_deadline(), self.changes_at, self.breaker.probe_at)
        return deadline if self.rested_at is None else min(deadline, self.rested_at)

    @property
    def takes_work(self) -> bool:
        """Whether the agent may get requests and queries."""
        return self.is_accepting and not self.is_cordoned and not self.is_retired

    @property
    def num_at_work(self) -> int:
        """The number of requests in the agent's engine, from all balancers, as last reported.

        The engine reports each change, so an idle engine has 0.
        """
        statistics = self.statistics
        return 0 if statistics is None else statistics.num_running + statistics.num_waiting

    @property
    def name(self) -> str:
        """The agent's name, as people see it."""
        return self.hello.name

    @property
    def host(self) -> AgentId:
        """The id of the agent's host, or the agent's own id if it reported no host."""
        return self.hello.host or self.hello.agent_id

    @property
    def served(self) -> str | None:
        """The name of the model that the agent serves."""
        return self.model.name if self.model else None

    @property
    def loading(self) -> ModelInfo | None:
        """The model that the agent is loading."""
        return self.hello.loading if self.model is None else None

    @property
    def generates(self) -> str | None:
        """The name of the served model, or `None` if the model cannot generate."""
        return self.served if self.model and "generate" in self.model.tasks else None

    @property
    def abilities(self) -> frozenset[Ability]:
        """The agent's abilities, which decide which requests it gets."""
        info = self.model or self.loading
        return ABILITIES if info is None else info.abilities

    @property
    def adapted(self) -> tuple[str, ...]:
        """The names of the model under each of its adapters."""
        model = self.model
        return () if model is None else tuple(adapted_name(model.name, a) for a in model.adapters)

    @property
    def fingerprint(self) -> str | None:
        """The model's fingerprint, which decides which agents can continue an answer."""
        return self.model.fingerprint if self.model else None

    @property
    def forwards(self) -> bool:
        """Whether the agent passes requests on to another server."""
        return self.model is not None and self.model.upstream is not None

    @property
    def failure(self) -> Issue | None:
        """Why the agent cannot serve its model now: its upstream server is unreachable."""
        if self.slots or not self.forwards:
            return None
        return next((issue for issue in self.issues if issue.code in SERVER_GONE), None)

    def goes_on_from(self, origin: str | None) -> bool:
        """Return whether the agent can continue an answer of engines with `origin` from its text.

        `origin` is a fingerprint, or `None` for an answer of a server or of several agents. The
        agent's engine needs the same weights. Servers with one model name are expected to have the
        same weights.
        """
        return self.forwards or origin in (None, self.fingerprint)

    def state(self, num_busy: int) -> AgentState:
        """Return the agent's state; `num_busy` is its number of requests."""
        if self.is_cordoned:
            return "draining" if num_busy else "drained"
        if not self.is_accepting:
            return "draining"
        if self.model is not None:
            return "ready" if self.failure is None else "failed"
        if any(issue.code in SERVER_GONE for issue in self.issues):
            return "failed"  # its server never was there
        phase = None if self.work is None or self.work.assignment is None else self.work.phase
        if phase == "failed":
            return "failed"
        return "loading" if phase is not None or self.loading is not None else "idle"

    def may_change(self, now: float) -> bool:
        """Return whether a status may be used now; only `STATUSES_A_SECOND` are used in a second.

        Each used status costs a pass over all waiting requests.
        """
        left = self.num_statuses - (now - self.status_at) * STATUSES_A_SECOND
        self.num_statuses, self.status_at = max(left, 0.0), now
        if self.num_statuses > STATUSES_AT_ONCE - 1:
            return False
        self.num_statuses += 1
        return True

    @property
    def changes_at(self) -> float:
        """The time at which the waiting status is used."""
        if self.status is None:
            return inf
        return self.status_at + (self.num_statuses - STATUSES_AT_ONCE + 1) / STATUSES_A_SECOND

    def changed(self, status: Status) -> None:
        """Use a status of the agent. For a retired agent, the served model is ignored."""
        self.issues = status.issues
        self.is_accepting = status.accepting
        self.work = status.work or self.work
        if not self.is_retired:
            self.slots, self.model = status.slots, status.model
            self.peer, self.disk = status.peer, status.disk

    def all_issues(self, now: float) -> tuple[Issue, ...]:
        """Return the agent's own issues and the balancer's issues with the agent."""
        issue = None if self.offence is None else self.offence.issue(now)
        said = (*self.issues, *self.breaker.issues, *self._twin_issues())
        return said if issue is None else (*said, issue)

    def _twin_issues(self) -> tuple[Issue, ...]:
        if not self.twins:
            return ()
        name = next(iter(self.twins.values()))
        message = f"the agent {name!r} has the same id and another access key; both are served"
        hint = (
            "two agents never have the same id by chance: revoke the key of the agent that you "
            "do not know"
        )
        return (Issue(code="identity_claimed", message=message[:MAX_WORDS], hint=hint),)

    def view(self, num_busy: int, now: float) -> AgentView:
        """Return the view of the agent for operators, under its host's id."""
        return AgentView(
            id=self.host,
            name=self.name,
            labels=self.hello.labels,
            version=self.hello.version,
            state=self.state(num_busy),
            slots=SlotsView(total=self.slots, busy=num_busy),
            model=self.model,
            issues=self.all_issues(now),
            statistics=self.statistics,
            num_tokens=self.num_tokens,
            connected_seconds=now - self.joined_at,
            facts=self.hello.facts,
            work=self.work,
            models=self._models(num_busy),
        )

    def _models(self, num_busy: int) -> tuple[ServedView, ...]:
        """Return the model that the agent serves, or is loading."""
        work = self.work
        assigned = None if work is None or work.assignment is None else work.assignment.name
        name = self.served or assigned
        if name is None:
            return ()
        slots = SlotsView(total=self.slots, busy=num_busy)
        needed = None if work is None else work.needed
        served = ServedView(
            name=name,
            state=self.state(num_busy),
            slots=slots,
            info=self.model,
            needed=needed,
            average_running=self.statistics.average_running if self.statistics else None,
        )
        return (served,)


@dataclass(frozen=True, slots=True)
class _Departed:
    """The reason and time of an agent's departure, and the time of its first connection."""

    why: Departure
    at: float
    joined_at: float


class Registry:
    """The connected agents by link and by id, and their deadlines.

    A retired agent stays here until its link is closed, but its id belongs to another link. Agents
    of one host are shown as one agent, so each change is recorded as a change of the host.
    """

    def __init__(self, limits: Limits, changes: ChangeLog) -> None:
        self._limits = limits
        self._changes = changes
        self._agents: dict[LinkId, Agent] = {}
        self._links: dict[AgentId, LinkId] = {}
        self._hosts: dict[AgentId, dict[LinkId, None]] = {}
        self._retired: dict[AgentId, list[LinkId]] = {}
        self._departures: OrderedDict[AgentId, _Departed] = OrderedDict()
        self._deadlines: Deadlines[Agent] = Deadlines()

    def __len__(self) -> int:
        """The number of links."""
        return len(self._agents)

    def __iter__(self) -> Iterator[Agent]:
        """Yield all links, longest connected first."""
        return iter(self._agents.values())

    @property
    def num_agents(self) -> int:
        """The number of hosts with agents."""
        return len(self._hosts)

    def hosts(self) -> Iterator[AgentId]:
        """Yield the ids of all hosts."""
        return iter(self._hosts)

    def on_host(self, host: AgentId) -> list[Agent]:
        """Return the agents of a host without retired agents, longest connected first."""
        return [self._agents[link] for link in self._hosts.get(host, ())]

    def find(self, id: AgentId) -> Agent | None:
        """Return the agent with this id, or else the first agent of the host `id`, or `None`."""
        link = self._links.get(id)
        return self._agents[link] if link is not None else next(iter(self.on_host(id)), None)

    def current(self) -> Iterator[Agent]:
        """Yield all agents that are not retired, longest connected first."""
        return (agent for agent in self._agents.values() if not agent.is_retired)

    def __getitem__(self, link: LinkId) -> Agent:
        return self._agents[link]

    def get(self, link: LinkId) -> Agent | None:
        """Return the agent on this link, or `None` if the link is closed."""
        return self._agents.get(link)

    def link_of(self, id: AgentId) -> LinkId | None:
        """Return the link of an agent, or `None` if the agent is not connected."""
        return self._links.get(id)

    def links_of(self, id: AgentId) -> list[LinkId]:
        """Return all links of an agent, including links of its retired processes."""
        current = self._links.get(id)
        retired = self._retired.get(id, [])
        return [*retired] if current is None else [current, *retired]

    def retired(self, id: AgentId) -> list[Agent]:
        """Return the retired processes of an agent, newest last."""
        return [self._agents[link] for link in self._retired.get(id, ())]

    def of(self, id: AgentId) -> Agent:
        """Return the connected agent with this id. Raises `KeyError`."""
        return self._agents[self._links[id]]

    def joined(
        self, link: LinkId, hello: Hello, now: float, breaker: CircuitBreaker | None = None
    ) -> Agent:
        """Add an agent. Raises `ValueError` if the agent already has a link."""
        if link in self._agents or hello.agent_id in self._links:
            raise ValueError(f"agent {hello.agent_id} on link {link} is here already")
        limits = self._limits
        heartbeat = HeartbeatMonitor(
            now, interval=limits.heartbeat_interval, timeout=limits.heartbeat_timeout
        )
        before = self._departures.get(hello.agent_id)
        is_back = before is not None and now <= before.at + RETURNED
        since = before.joined_at if before is not None and is_back else now
        agent = Agent(link, hello, hello.slots, hello.model, since, heartbeat, work=hello.work)
        agent.peer, agent.disk = hello.peer, hello.disk
        agent.breaker = breaker or agent.breaker
        self._agents[link] = agent
        self._links[hello.agent_id] = link
        self._hosts.setdefault(agent.host, {})[link] = None
        self._deadlines.arm(agent)
        self.touch(link)
        return agent

    def meets_twins(self, agent: Agent) -> None:
        """Record the agents with other keys that sent the same id."""
        claimed = {*agent.said, agent.hello.agent_id, agent.host}
        for other in self._agents.values():
            if key_of(other.holder) == key_of(agent.holder) or not agent.said:
                continue
            if not claimed.isdisjoint({*other.said, other.hello.agent_id, other.host}):
                agent.twins[other.link], other.twins[agent.link] = other.name, agent.name
                self.touch(other.link)

    def departure_of(self, id: AgentId) -> Departure | None:
        """Return why an agent left, or `None` if its departure is not remembered."""
        departed = self._departures.get(id)
        return None if departed is None else departed.why

    def left(self, link: LinkId, why: Departure = "lost", now: float = inf) -> Agent:
        """Remove and return the agent on `link`."""
        agent = self._agents.pop(link)
        self._deadlines.disarm(agent)
        for twin in agent.twins:
            del self._agents[twin].twins[link]
            self.touch(twin)
        if agent.is_retired:
            self._left_at_last(agent)
        else:
            self._unlink(agent)
            self._departs(agent.hello.agent_id, agent, why, now)
            if agent.host in self._hosts:
                self._changes.agent_changed(agent.host)
            else:
                self._changes.agent_gone(agent.host)
                self._departs(agent.host, agent, why, now)
        return agent

    def _unlink(self, agent: Agent) -> None:
        del self._links[agent.hello.agent_id]
        links = self._hosts[agent.host]
        del links[agent.link]
        if not links:
            del self._hosts[agent.host]

    def _departs(self, id: AgentId, agent: Agent, why: Departure, now: float) -> None:
        self._departures[id] = _Departed(why, now, agent.joined_at)
        self._departures.move_to_end(id)
        if len(self._departures) > MAX_DEPARTURES:
            self._departures.popitem(last=False)

    def _left_at_last(self, agent: Agent) -> None:
        """Forget a retired process that has left."""
        id = agent.hello.agent_id
        self._retired[id].remove(agent.link)
        if not self._retired[id]:
            del self._retired[id]
        if id in self._links:
            self._changes.agent_changed(agent.host)

    def retire(self, agent: Agent) -> None:
        """Retire an agent, because another process of the agent has taken over.

        The issues and slots of a retired agent are no longer shown.
        """
        agent.is_retired = True
        agent.peer = None
        agent.slots = 0
        self._unlink(agent)
        self._departs(agent.hello.agent_id, agent, "stopped", inf)
        self._retired.setdefault(agent.hello.agent_id, []).append(agent.link)

    def touch(self, link: LinkId) -> None:
        """Record a visible change of an agent, if the agent is still connected."""
        agent = self._agents.get(link)
        if agent is not None and agent.hello.agent_id in self._links:
            self._changes.agent_changed(agent.host)

    def generated(self, agent: Agent, num_tokens: int) -> None:
        """Count `num_tokens` that an agent generated."""
        agent.num_tokens += num_tokens
        if agent.hello.agent_id in self._links:
            self._changes.agent_generated(agent.host)

    def message_to(self, link: LinkId, message: FromBalancer, now: float) -> Send:
        """Return the decision to send `message` in the agent's protocol version.

        The message replaces the next heartbeat.
        """
        agent = self._agents[link]
        agent.heartbeat.sent(now)
        return Send(link, for_version(message, agent.hello.protocol))

    def rests(self, agent: Agent, now: float) -> None:
        """Mark an agent as full for `BUSY_PAUSE` seconds."""
        agent.rested_at = now + BUSY_PAUSE
        self._deadlines.arm(agent)

    def waits(self, agent: Agent, status: Status) -> None:
        """Keep a status until `may_change`. A newer status replaces the kept status."""
        agent.status = status
        self._deadlines.arm(agent)

    def next_deadline(self) -> float | None:
        """Return a time that is not later than the first deadline of any agent."""
        return self._deadlines.next()

    def due(self, now: float) -> list[Agent]:
        """Return the agents whose deadline has come. The caller must remove or `arm` each."""
        return self._deadlines.due(now)

    def arm(self, agent: Agent) -> None:
        """Arm the agent's next deadline, after the deadline moved earlier or its work was done."""
        self._deadlines.arm(agent)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self._deadlines.check_integrity()
        retired = {(each.hello.agent_id, each.link) for each in self if each.is_retired}
        if retired != {(id, link) for id, links in self._retired.items() for link in links}:
            raise RuntimeError("a retired link is not where it should be")
        links = {agent.hello.agent_id: agent.link for agent in self.current()}
        if links != self._links or any(agent.armed_at is None for agent in self):
            raise RuntimeError("an agent is not where it should be")
        hosts: dict[AgentId, set[LinkId]] = {}
        for agent in self.current():
            hosts.setdefault(agent.host, set()).add(agent.link)
        if hosts != {host: set(links) for host, links in self._hosts.items()}:
            raise RuntimeError("an agent is not on its host")
