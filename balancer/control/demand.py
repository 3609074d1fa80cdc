"""Finds the models in demand, and their order if there are too few agents.

Models with `preload` come first. A model that is loaded on demand keeps its agents while it loads
or is used. A model with waiting requests and no agent gets an idle agent. After `PATIENCE` seconds
it gets an agent that is busy with another model, if that model is loaded on demand and was served
for `MIN_TURN`.

On a host with several models, an agent may have a model but no memory for it yet. Until unused
models make room, such a model waits like a model without an agent.

A model in use never makes room. If the requests that needed its room have given up, it keeps its
agent as long as the agent still has it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import inf

from ...shared.inference import AgentId
from .desired_state import DesiredModel
from .members import Member

PATIENCE = 5.0
"""Seconds that requests wait before a busy agent changes its model for them."""

MIN_TURN = 20.0
"""Seconds for which a model in use keeps its agent before another model has its turn."""

RETURN = 5.0
"""Seconds for which a model goes on draining after the last waiting request has given up.

Clients may ask again.
"""

IDLE_AFTER = 1.0
"""Seconds without requests after which a model counts as idle."""

PRELOADED, IN_TURN, WAITING, IDLE = range(4)
"""Tiers of models in demand; models of the first tier are served first."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests that wait for a model; the oldest has waited since `since`."""

    num_waiting: int = 0
    since: float = 0.0


NO_DEMAND = Demand()


class _Contention(IntEnum):
    """How long requests have waited for a model for which no agent has memory."""

    NONE = 0
    SHORT = 1
    LONG = 2


@dataclass(slots=True)
class _Usage:
    used_at: float
    serving_since: float | None = None
    asked_at: float = -inf


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tier of each model in demand, and when the tiers next change with time.

    `recalled` are agents that keep a model although they were told to unload it.
    """

    tiers: Mapping[str, int]
    reconcile_at: float | None = None
    recalled: Mapping[AgentId, Member] = field(default_factory=dict)


@dataclass(slots=True)
class _Times:
    """The times at which something changes without an event."""

    now: float
    times: list[float] = field(default_factory=list)

    def has_come(self, time: float) -> bool:
        if time <= self.now:
            return True
        self.times.append(time)
        return False


class Usage:
    """When each desired model was last used, and since when it is served."""

    def __init__(self) -> None:
        self._usage: dict[str, _Usage] = {}

    def tiers(
        self,
        models: Sequence[DesiredModel],
        members: Iterable[Member],
        demands: Mapping[str, Demand],
        now: float,
    ) -> Tiers:
        """Return the tier of each model that is in demand now."""
        here = list(members)
        times = _Times(now)
        self._update(models, here, demands, now)
        wanted = {**demands, **self._expected(here, demands, times)}
        recalled = self._recalled(models, here, wanted, demands)
        by_model = _by_model(models, [recalled.get(each.id, each) for each in here])
        contention = self._contention(models, by_model, wanted, times)
        tiers = {}
        for model in models:
            demand = wanted.get(model.name, NO_DEMAND)
            tier = self._tier(
                model, by_model[model.name], demand, contention=contention, times=times
            )
            if tier is not None:
                tiers[model.name] = tier
        return Tiers(tiers, min(times.times, default=None), recalled)

    def used_at(self, model: str) -> float:
        """Return when a model was last used; `tiers` must have been called with the model."""
        return self._usage[model].used_at

    def _update(
        self,
        models: Iterable[DesiredModel],
        members: Iterable[Member],
        demands: Mapping[str, Demand],
        now: float,
    ) -> None:
        names = [model.name for model in models]
        self._usage = {name: self._usage.get(name) or _Usage(used_at=now) for name in names}
        served: set[str] = set()
        for member in members:
            has = member.report.serves or member.leaves
            if has is not None:
                served.add(has)
            if (usage := self._usage.get(has or member.model or "")) is not None:
                is_busy = member.report.num_running > 0
                usage.used_at = now if is_busy else max(usage.used_at, member.report.used_at)
        for name, usage in self._usage.items():
            if name in demands:
                usage.used_at = usage.asked_at = now
            if name not in served:
                usage.serving_since = None
            elif usage.serving_since is None:
                usage.serving_since = now

    def _expected(
        self, members: Sequence[Member], demands: Mapping[str, Demand], times: _Times
    ) -> Mapping[str, Demand]:
        """Return the models for which others are drained, while requests wait or soon will."""
        draining = {each.report.host_id for each in members if _is_draining(each)}
        waiting = {
            each.comes
            for each in members
            if each.waits_for_room and each.report.host_id in draining
        }
        return {
            name: Demand(1, -inf)
            for name, usage in self._usage.items()
            if name in waiting and (name in demands or not times.has_come(usage.asked_at + RETURN))
        }

    def _recalled(
        self,
        models: Iterable[DesiredModel],
        members: Sequence[Member],
        wanted: Mapping[str, Demand],
        demands: Mapping[str, Demand],
    ) -> Mapping[AgentId, Member]:
        """Return the agents that need not unload their model any more.

        They still have a model that they were told to unload, but no other model needs its room
        now.
        """
        always = {each.name for each in models if each.preload and each.idle_timeout is None}
        needed = {*always, *wanted, *(each.report.serves for each in members)}
        needed &= self._usage.keys()
        awaited = {each.report.host_id for each in members if each.comes in needed}
        recalled = {}
        for member in members:
            has, comes = member.leaves, member.comes
            if comes is None:
                is_for_nobody = member.report.host_id not in awaited
            else:
                is_in_use = has in demands or member.report.num_running > 0
                goes_on = comes in self._usage and not (is_in_use or member.waits_for_room)
                is_for_nobody = comes not in needed and not goes_on
            if is_for_nobody and has in self._usage:
                recalled[member.id] = replace(member, keeps=has)
        return recalled

    def _contention(
        self,
        models: Sequence[DesiredModel],
        by_model: Mapping[str, list[Member]],
        demands: Mapping[str, Demand],
        times: _Times,
    ) -> _Contention:
        """Return how long requests have waited for a model for which no agent has memory."""
        contention = _Contention.NONE
        for model in models:
            if model.name in demands and not _has_memory(model.name, by_model[model.name]):
                has_waited = times.has_come(demands[model.name].since + PATIENCE)
                contention = max(contention, _Contention.LONG if has_waited else _Contention.SHORT)
        return contention

    def _tier(
        self,
        model: DesiredModel,
        members: Sequence[Member],
        demand: Demand,
        *,
        contention: _Contention,
        times: _Times,
    ) -> int | None:
        usage = self._usage[model.name]
        if not demand.num_waiting and self._has_expired(model, usage, times):
            return None
        if model.preload:
            return PRELOADED
        if not _has_memory(model.name, members):
            return WAITING if demand.num_waiting else None
        is_loading = any(
            each.is_changing and not each.waits_for_room and each.leaves != model.name
            for each in members
        )
        if contention is _Contention.NONE or is_loading:
            return IN_TURN
        if not demand.num_waiting and times.has_come(usage.used_at + IDLE_AFTER):
            return IDLE
        since = times.now if usage.serving_since is None else usage.serving_since
        is_over = contention is _Contention.LONG and times.has_come(since + MIN_TURN)
        return IDLE if is_over else IN_TURN

    def _has_expired(self, model: DesiredModel, usage: _Usage, times: _Times) -> bool:
        return model.idle_timeout is not None and times.has_come(usage.used_at + model.idle_timeout)


def _is_draining(member: Member) -> bool:
    """Return whether the agent drains: it takes no new requests and will unload its model."""
    return member.leaves is not None and member.report.serves is None


def _by_model(
    models: Iterable[DesiredModel], members: Sequence[Member]
) -> Mapping[str, list[Member]]:
    """Return the agents of each model: agents that are to serve it, or still have it."""
    found: dict[str, list[Member]] = {model.name: [] for model in models}
    crowded = {each.report.host_id for each in members if each.waits_for_room}
    for member in members:
        still = member.leaves if member.report.host_id in crowded else None
        for name in {member.model, still} - {None}:
            if name in found:
                found[name].append(member)
    return found


def _has_memory(model: str, members: Iterable[Member]) -> bool:
    """Return whether any agent has the model in memory or is loading it."""
    return any(not member.waits_for_room or member.leaves == model for member in members)
