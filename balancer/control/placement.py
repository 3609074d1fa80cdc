"""Decides which agent should serve which model, and moves as few models as possible.

Each model requires a number of agents, or all remaining agents. Agents that have a model already
keep it as long as the model requires them. Then idle agents are taken, then agents of models that
come later. If an agent with the right labels is taken by a model that could be served elsewhere,
that model moves.

Each model sorts its possible agents once, by the models that they have already. So a place costs
O(models), and all places O(models x agents x log agents). Only if an agent has to be taken from a
model that was placed, all agents are examined for one place.

Placement depends on the memory that models need (`MemoryNeeds`) and on agents that left a moment
ago (`Departures`).

Agents of one host share the memory of each device and the host's own. Together they get no more
than the host holds, and no model twice. Models that are placed first get memory first. So unused
models make room for a model that requests wait for, the least recently used first, and only on the
same memory. Unused models take no memory from each other, so a model that made room is not loaded
elsewhere at another unused model's cost. A model that waits for room moves to a host where no
model has to make room. Models with `preload` never make room: if they leave a model too little of
a device, the model takes what is left there.

The memory that other programs take of a host varies, so it moves no model. It only decides between
hosts for a model that is loaded anew. If other programs leave too little memory on a host, the
host is taken only if there is no other host, or if a model in use would have to make room on the
other hosts.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import NamedTuple

from ...shared.inference import AgentId
from ...shared.models.assignments import HOST, Assignment, loaded_with
from .demand import IDLE, PRELOADED
from .members import AgentReport, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A model that must be on `at_least` of the agents in `eligible`, preferably the first ones.

    With `takes_rest` it gets all agents that no other model requires. Lower `tier`s are served
    first. Within a tier, models take turns; of `IDLE` models, the one used last (`used_at`) is
    first. `needed` is its memory in bytes next to other models of a host: 0 while unknown, and
    infinite if it will never be known. `claims` are the bytes that must be free in each memory of
    a host before the model is loaded, if known.

    `reserved` places are kept for agents that left a moment ago. If the model `is_gone`, because
    no other agent has it, all places except the first are kept, if an agent is spare.
    """

    model: str
    at_least: int
    eligible: Set[AgentId]
    takes_rest: bool = False
    tier: int = 0
    reserved: int = 0
    is_gone: bool = False
    needed: float = 0
    claims: Mapping[AgentId, Mapping[str, int]] = field(default_factory=dict)
    used_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Placement:
    """The model of each agent, `None` for agents that no model requires; and the empty places.

    `missing` counts the places of a model's `at_least` without an agent. Agents that
    `take_what_is_left` do not wait for memory of devices, because the other models there stay.
    """

    models: Mapping[AgentId, str | None]
    missing: Mapping[str, int]
    take_what_is_left: Set[AgentId] = frozenset()


_ALL = "*"
"""The name for all memories of a host together."""


def place(requirements: Sequence[Requirement], members: Iterable[Member]) -> Placement:
    """Choose a model for each of `members`. The order of `requirements` breaks ties."""
    return _Placing(requirements, members).run()


@dataclass(slots=True)
class _PlacedModel:
    """A model in placement. `candidates` are its eligible agents by their present model,
    sorted.
    """

    requirement: Requirement
    candidates: list[deque[AgentId]] | None = None
    holders: list[AgentId] = field(default_factory=list)
    num_holding: int = 0
    num_placed: int = 0
    reserved: int = 0
    is_short: bool = False

    @property
    def num_missing(self) -> int:
        return max(0, self.requirement.at_least - self.num_placed)


class _Placing:
    def __init__(self, requirements: Sequence[Requirement], members: Iterable[Member]) -> None:
        self._members = {member.id: member for member in members}
        self._models = {
            requirement.model: _PlacedModel(requirement, reserved=requirement.reserved)
            for requirement in sorted(requirements, key=_turn)
        }
        self._chosen: dict[AgentId, str | None] = dict.fromkeys(self._members)
        self._ranks = {name: rank for rank, name in enumerate(self._models)}
        self._flexibility: Counter[AgentId] = Counter()
        for model in self._models.values():
            self._flexibility.update(model.requirement.eligible)
        self._neighbours = _neighbours(self._members.values())
        self._held = {
            (member.report.host_id, member.model): held
            for member in self._members.values()
            if (held := member.report.held) and member.model in _present(member.report)
        }
        self._find_holders()

    def _find_holders(self) -> None:
        """Find the agents by the model that they have; the agents to keep come last."""
        for member in sorted(self._members.values(), key=_worth_keeping):
            model = self._models.get(member.model) if member.model else None
            if model is not None and member.id in model.requirement.eligible:
                model.holders.append(member.id)
                model.num_holding += 1

    def run(self) -> Placement:
        for name in self._places():
            self._fill(self._models[name])
        self._share_rest()
        missing = {name: model.num_missing for name, model in self._models.items()}
        short = {name: most for name, most in missing.items() if most}
        return Placement(self._chosen, short, {*filter(self._takes_what_is_left, self._chosen)})

    def _places(self) -> Iterator[str]:
        """Yield the model of each place to fill, tier by tier, models in turn."""
        tiers: defaultdict[int, list[_PlacedModel]] = defaultdict(list)
        for model in self._models.values():
            tiers[model.requirement.tier].append(model)
        for models in tiers.values():
            for turn in count():
                unfilled = [m for m in models if m.requirement.at_least > turn and not m.is_short]
                if not unfilled:
                    break
                yield from (model.requirement.model for model in unfilled)

    def _fill(self, model: _PlacedModel) -> None:
        agent = self._own(model)
        if agent is not None and self._members[agent].waits_for_room:
            agent = self._roomier(agent, model)
        if agent is None and model.requirement.is_gone and not model.num_placed:
            agent = self._spare(model)
        if agent is None and model.reserved:
            model.reserved -= 1
            model.num_placed += 1
            return
        if agent is None:
            agent = self._best(model)
        if agent is not None and self._may_load(agent, model):
            self._take(agent, model)
        elif model.requirement.tier == IDLE or not self._augment(model, set()):
            model.is_short = True

    def _may_load(self, agent: AgentId, model: _PlacedModel) -> bool:
        """Return whether the model may be loaded on the agent.

        A model that is not in use displaces no other model.
        """
        is_own = self._members[agent].model == model.requirement.model
        return is_own or model.requirement.tier != IDLE or self._price(agent, model).worth == 0

    def _own(self, model: _PlacedModel) -> AgentId | None:
        """Return an agent that has the model and was not given to another model."""
        while model.holders:
            agent = model.holders.pop()
            if self._chosen[agent] is None and self._has_room(agent, model):
                return agent
            model.num_holding -= self._chosen[agent] is None
        return None

    def _roomier(self, own: AgentId, model: _PlacedModel) -> AgentId:
        """Return an agent where no model must make room, if `model` waits for memory on `own`."""
        if self._first_in_the_way(own, model, self._models_beside(own)) is None:
            return own
        best = self._best(model)
        if best is None or self._price(best, model).worth:
            return own
        model.holders.append(own)
        return best

    def _best(self, model: _PlacedModel) -> AgentId | None:
        """Return the agent that other models miss least."""
        if model.candidates is None:
            model.candidates = self._candidates(model)
        for group in model.candidates:
            while group and not (self._is_free(group[0]) and self._has_room(group[0], model)):
                group.popleft()
        firsts = [group[0] for group in model.candidates if group]
        return min(firsts, key=lambda agent: self._price(agent, model), default=None)

    def _spare(self, model: _PlacedModel) -> AgentId | None:
        """Return an agent without a model."""
        agent = self._best(model)
        return None if agent is None or self._members[agent].model is not None else agent

    def _candidates(self, model: _PlacedModel) -> list[deque[AgentId]]:
        """Return the connected agents by their present model; within a group prices keep their
        order.
        """
        groups: defaultdict[str | None, list[AgentId]] = defaultdict(list)
        for agent in model.requirement.eligible:
            if agent in self._members:
                groups[self._members[agent].model].append(agent)
        return [
            deque(sorted(group, key=lambda agent: self._price(agent, model)))
            for group in groups.values()
        ]

    def _is_free(self, agent: AgentId) -> bool:
        """Return whether the agent has no model yet."""
        return agent in self._chosen and self._chosen[agent] is None

    def _price(self, agent: AgentId, model: _PlacedModel) -> "_Price":
        member = self._members[agent]
        owner = self._models.get(member.model) if member.model else None
        is_idle = member.model is None
        rank = 0 if owner is None else -self._ranks[owner.requirement.model]
        worth = 0 if is_idle else 1 if owner is None or self._has_surplus(owner) else 2
        beside = self._models_beside(agent)
        gone = [] if owner is None or worth < 2 else [owner]
        if (victim := self._first_in_the_way(agent, model, beside)) is not None:
            worth, rank = 2, max(-self._ranks[victim], rank if worth == 2 else -len(self._ranks))
            gone.append(self._models[victim])
        return _Price(
            any(each.requirement.tier != IDLE for each in gone),
            self._is_crowded_by_others(agent, model, beside),
            worth,
            rank,
            len(gone),
            len(beside),
            self._flexibility[agent],
            _size_order(member.report, model.requirement.needed),
            member.report.num_running,
            agent,
        )

    def _is_crowded_by_others(
        self, agent: AgentId, model: _PlacedModel, beside: Sequence[str]
    ) -> bool:
        """Return whether the model would fit on the host without other programs' memory."""
        report, needed = self._members[agent].report, model.requirement.needed
        others = report.others
        if not others:
            return False
        free = Counter(report.memories)
        for name in beside:
            if self._models[name].requirement.tier != IDLE:
                free.subtract(self._parts(agent, name) or {})
        claims = model.requirement.claims.get(report.host_id)
        if claims is not None:
            return any(free[d] - others.get(d, 0) < size <= free[d] for d, size in claims.items())
        places = [each.name for each in report.facts.devices] or [HOST]
        room = sum(free[each] for each in places)
        return 0 < needed <= room < needed + sum(others.get(each, 0) for each in places)

    def _models_beside(self, agent: AgentId) -> list[str]:
        """Return the models of the host's other agents."""
        return [
            name
            for each in self._neighbours.get(agent, ())
            if (name := self._members[each].model) in self._models
        ]

    def _first_in_the_way(
        self, agent: AgentId, model: _PlacedModel, beside: Sequence[str]
    ) -> str | None:
        """Return the first model, in order, that would have to make room."""
        there = [model.requirement.model, *beside]
        victim = None
        for name in sorted(beside, key=self._ranks.__getitem__, reverse=True):
            overfull = self._overfull(agent, there)
            if not overfull:
                break
            if self._lies_on(agent, name, overfull):
                there.remove(name)
                victim = name
        return victim

    def _has_room(self, agent: AgentId, model: _PlacedModel) -> bool:
        """Return whether the host has memory for the model and its other agents' models."""
        name = model.requirement.model
        beside = self._chosen_beside(agent)
        if not beside:
            return True
        if name in beside:
            return False
        if not self._lies_on(agent, name, self._overfull(agent, [name, *beside])):
            return True
        if self._is_held(agent, name) and not self._stays(name):
            return False
        stay = filter(self._stays, beside)
        is_modest = self._lies_on(agent, name, self._overfull(agent, [name, *stay]))
        return is_modest and self._needed_together([name, *beside]) <= self._memory(agent)

    def _takes_what_is_left(self, agent: AgentId) -> bool:
        """Return whether models that stay loaded leave the agent's model too little memory."""
        name = self._chosen[agent]
        if name is None or self._is_held(agent, name):
            return False
        beside = self._chosen_beside(agent)
        stay = [each for each in beside if self._stays(each) and self._is_held(agent, each)]
        return self._lies_on(agent, name, self._overfull(agent, [name, *stay]))

    def _chosen_beside(self, agent: AgentId) -> list[str]:
        """Return the models chosen for the host's other agents."""
        neighbours = self._neighbours.get(agent, ())
        return [name for each in neighbours if (name := self._chosen[each]) is not None]

    def _overfull(self, agent: AgentId, names: Sequence[str]) -> Set[str]:
        """Return the memories of a host that are too small for these models together.

        If the parts of a model are not known, all memories count as one. Loaded models always fit,
        and so does a single model.
        """
        if len(names) == 1 or all(self._is_held(agent, name) for name in names):
            return frozenset()
        parts = [each for name in names if (each := self._parts(agent, name)) is not None]
        if len(parts) < len(names):
            is_short = self._needed_together(names) > self._memory(agent)
            return frozenset({_ALL} if is_short else ())
        memories = self._members[agent].report.memories.items()
        return {each for each, size in memories if sum(part.get(each, 0) for part in parts) > size}

    def _lies_on(self, agent: AgentId, name: str, memories: Set[str]) -> bool:
        """Return whether the model needs any of `memories` on the agent's host."""
        parts = self._parts(agent, name) or {}
        return _ALL in memories or any(parts.get(each) for each in memories)

    def _parts(self, agent: AgentId, name: str) -> Mapping[str, int] | None:
        """Return the bytes that a model uses, or needs free, in each memory of a host.

        Returns `None` if unknown.
        """
        host = self._members[agent].report.host_id
        held, claims = self._held.get((host, name)), self._models[name].requirement.claims.get(host)
        if held is None or claims is None or HOST in held:
            return claims if held is None else held
        return {HOST: claims.get(HOST, 0), **held}

    def _is_held(self, agent: AgentId, name: str) -> bool:
        """Return whether the model is known to be loaded on the agent's host."""
        return (self._members[agent].report.host_id, name) in self._held

    def _stays(self, name: str) -> bool:
        return self._models[name].requirement.tier == PRELOADED

    def _needed_together(self, names: Iterable[str]) -> float:
        return sum(self._models[name].requirement.needed for name in names)

    def _memory(self, agent: AgentId) -> int:
        return self._members[agent].report.memory

    def _has_surplus(self, model: _PlacedModel) -> bool:
        return model.num_holding > model.num_missing

    def _take(self, agent: AgentId, model: _PlacedModel) -> None:
        member = self._members[agent]
        owner = self._models.get(member.model) if member.model else None
        if owner is not None and self._is_free(agent) and agent in owner.requirement.eligible:
            owner.num_holding -= 1
        self._chosen[agent] = model.requirement.model
        model.num_placed += 1

    def _augment(self, model: _PlacedModel, seen: set[AgentId]) -> bool:
        """Take an agent from a model that can be served elsewhere as well."""
        for agent in sorted(model.requirement.eligible - seen):
            if agent not in self._chosen or self._chosen[agent] == model.requirement.model:
                continue
            if not self._has_room(agent, model):
                continue
            seen.update((agent, *self._neighbours.get(agent, ())))  # what leaves, leaves the host
            owner = self._chosen[agent]
            if owner is None or self._replace(agent, self._models[owner], seen):
                self._take(agent, model)
                return True
        return False

    def _replace(self, agent: AgentId, model: _PlacedModel, seen: set[AgentId]) -> bool:
        """Find another agent for a place of `model`."""
        if not self._augment(model, seen):
            return False
        model.num_placed -= 1
        return True

    def _share_rest(self) -> None:
        """Share the remaining agents among the models that take all.

        An agent keeps such a model; other agents go to the model with the fewest.
        """
        greedy = [model for model in self._models.values() if model.requirement.takes_rest]
        names = {model.requirement.model for model in greedy}
        free = [self._members[agent] for agent in sorted(self._chosen) if not self._chosen[agent]]
        holders = sorted((m for m in free if m.model in names), key=_worth_keeping, reverse=True)
        # A host holds a model once, in the place that has it already.
        for member in holders + [member for member in free if member.model not in names]:
            agent = member.id
            able = [
                model
                for model in greedy
                if agent in model.requirement.eligible and self._has_room(agent, model)
            ]
            if able:
                beside = self._models_beside(agent)
                best = min(
                    able,
                    key=lambda m: (
                        m.requirement.model != member.model,
                        m.num_placed,
                        self._is_crowded_by_others(agent, m, beside),
                    ),
                )
                self._take(agent, best)


def _worth_keeping(member: Member) -> tuple[bool, bool, int, str]:
    """Return a sort key that puts agents to keep last: serving agents, then the busiest."""
    serves = member.report.serves is not None and member.report.serves == member.model
    return (serves, not member.has_failed, member.report.num_running, member.id)


def _present(report: AgentReport) -> set[str | None]:
    """Return the models that an agent has in memory."""
    return {report.serves, report.finishing}


class _Price(NamedTuple):
    """The price of taking an agent for a model; the lowest price wins."""

    evicts_in_use: bool
    is_crowded: bool
    worth: int
    rank: int
    num_gone: int
    num_beside: int
    flexibility: int
    size: int
    num_running: int
    agent: str


def _size_order(report: AgentReport, needed: float) -> int:
    """Return a sort key: the smallest host that holds the model first.

    If the size is unknown, the largest host comes first, and memory of other programs does not
    count.
    """
    return report.memory if 0 < needed < inf else sum(report.others.values()) - report.memory


def _turn(requirement: Requirement) -> tuple[int, float]:
    return requirement.tier, -requirement.used_at if requirement.tier == IDLE else 0.0


def _neighbours(members: Iterable[Member]) -> Mapping[AgentId, list[AgentId]]:
    """Return the other agents of the same host, for agents that have any."""
    hosts: defaultdict[AgentId, list[AgentId]] = defaultdict(list)
    for member in members:
        hosts[member.report.host_id].append(member.id)
    return {
        agent: [other for other in agents if other != agent]
        for agents in hosts.values()
        if len(agents) > 1
        for agent in agents
    }


# ---- what placement goes by

MAX_KNOWN = 1024
MAX_CLAIMS = 8192
"""Maximum claims that are kept: more than needs, since a model's claims depend on the host."""


class MemoryNeeds:
    """The bytes of memory that models need, as agents estimated them from the files.

    The key is everything that decides the need: files, adapters, slots, context and engine
    options. The latest `MAX_KNOWN` needs are kept, and the latest `MAX_CLAIMS` claims on hosts.
    The need is `None` if it cannot be estimated from the files: such a model is served alone on a
    host.
    """

    def __init__(self) -> None:
        self._needed: OrderedDict[Hashable, int | None] = OrderedDict()
        self._least: dict[Hashable, int | None] = {}
        self._claims: OrderedDict[tuple[AgentId, Hashable], Mapping[str, int]] = OrderedDict()

    def learn(self, report: AgentReport) -> None:
        """Record an agent's estimate."""
        work = report.work
        if work is None or work.assignment is None:
            return
        if work.needed is None and work.phase not in ("draining", "loading", "serving"):
            return  # its file is not here yet
        if work.phase in ("fetching", "failed") and report.serves is not None:
            return  # what it serves meanwhile needs that
        key = _key(work.assignment)
        self._needed[key], self._least[key] = work.needed, work.least
        self._needed.move_to_end(key)
        if len(self._needed) > MAX_KNOWN:
            forgotten, _ = self._needed.popitem(last=False)
            del self._least[forgotten]
        if work.claims:
            claims = {part.device: part.bytes for part in work.claims}
            self._claims[report.host_id, key] = claims
            self._claims.move_to_end((report.host_id, key))
        if len(self._claims) > MAX_CLAIMS:
            self._claims.popitem(last=False)

    def claims(
        self, assignment: Assignment, members: Iterable[Member]
    ) -> Mapping[AgentId, Mapping[str, int]]:
        """Return the bytes that must be free for a model in each memory, for hosts that reported
        them.
        """
        key = _key(assignment)
        hosts = {member.report.host_id for member in members}
        return {host: found for host in hosts if (found := self._claims.get((host, key)))}

    def of(self, assignment: Assignment) -> int | None:
        """Return the bytes that an assignment needs, if an agent reported them."""
        return self._needed.get(_key(assignment))

    def least_of(self, assignment: Assignment) -> int | None:
        """Return the fewest bytes that suffice to load an assignment, if less than its need."""
        least = self._least.get(_key(assignment))
        return self.of(assignment) if least is None else least

    def beside_others(self, assignment: Assignment) -> float:
        """Return the bytes of an assignment next to other models: 0 while unknown, or infinite."""
        key = _key(assignment)
        if key not in self._needed:
            return 0
        needed = self._needed[key]
        return inf if needed is None else needed

    def fits(self, assignment: Assignment, report: AgentReport) -> bool:
        """Return whether the agent's memory suffices; true if either size is unknown."""
        needed = self.least_of(assignment)
        return needed is None or not report.memory or needed <= report.memory


def _key(assignment: Assignment) -> Hashable:
    return loaded_with(assignment), assignment.adapters, assignment.slots


HOLD = 30.0
"""Seconds for which the place of an agent that left is reserved."""

REDIAL = 3.0
"""Seconds within which an agent that lost its connection usually returns."""

MAX_RESERVED = 4096


@dataclass(frozen=True, slots=True)
class _Gone:
    """An agent that left, with its host's name, and the end of its reservation."""

    name: str
    model: str
    until: float


class Departures:
    """Places that are reserved for agents that left a moment ago, because most of them return.

    These agents are remembered with their models, and with the time until which each place is
    reserved. Agents without a model are remembered for the same time. If a spare agent exists, a
    model that no other agent has waits only as long as an agent takes to connect again. At most
    `MAX_RESERVED` places are reserved.
    """

    def __init__(self) -> None:
        self._gone: OrderedDict[AgentId, _Gone] = OrderedDict()
        self._free: OrderedDict[AgentId, float] = OrderedDict()
        self._here: dict[AgentId, Member] = {}

    def update(self, members: Mapping[AgentId, Member], now: float) -> None:
        """Compare with the last call: find agents that left, and agents that returned."""
        for id in self._here.keys() - members.keys():
            model = self._here[id].model
            if model is None:
                self._free[id] = now + HOLD
            else:
                self._gone[id] = _Gone(self._here[id].report.name, model, now + HOLD)
        self._came_back([members[id].report for id in members.keys() - self._here.keys()])
        while self._gone and (self._first_end() <= now or len(self._gone) > MAX_RESERVED):
            self._gone.popitem(last=False)
        while self._free and (self._free_until() <= now or len(self._free) > MAX_RESERVED):
            self._free.popitem(last=False)
        self._here = dict(members)

    def _came_back(self, new: Sequence[AgentReport]) -> None:
        """Recognise restarted agents, which have a new id and the same name.

        A returning agent without a model changes nothing: the places of its host's other agents
        stay reserved.
        """
        names = Counter(report.name for report in new if report.id not in self._free)
        ids = {report.id for report in new}
        for id in ids & self._free.keys():
            del self._free[id]
        for id in list(self._gone):
            name = self._gone[id].name
            if id in ids:
                del self._gone[id]
            elif names[name]:
                names[name] -= 1
                del self._gone[id]

    def reserved(self) -> Counter[str]:
        """Return the number of reserved places of each model."""
        return Counter(gone.model for gone in self._gone.values())

    def redialling(self, now: float) -> set[str]:
        """Return the models of agents that may only have lost their connection."""
        return {gone.model for gone in self._gone.values() if now < gone.until - HOLD + REDIAL}

    def next_change(self, now: float) -> float | None:
        """Return when the next agent has been away for `REDIAL`, or the next reservation ends."""
        redials = (gone.until - HOLD + REDIAL for gone in self._gone.values())
        coming = [time for time in redials if now < time]
        return min([*coming, self._first_end()]) if self._gone else None

    def _first_end(self) -> float:
        return next(iter(self._gone.values())).until

    def _free_until(self) -> float:
        return next(iter(self._free.values()))
