"""Which models are in demand at the moment, and which come first when there are too few agents.

Models with `preload` come first. A model that is loaded on demand keeps its agents while it loads
or is used. A model with waiting requests and no agent is given one that is idle; after `PATIENCE`,
one that is busy with another model that is loaded on demand and had its turn for `MIN_TURN`.

Where a host serves several models, an agent of it may have a model and no memory for it yet: until
models that are not used make room, that model waits like one that no agent has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from .desired_state import DesiredModel
from .members import Member

PATIENCE = 5.0
"""Seconds that requests wait before a busy agent changes its model for them."""

MIN_TURN = 20.0
"""Seconds for which a model that is in use keeps its agent before another one has its turn."""

IDLE_AFTER = 1.0
"""Seconds without requests after which a model counts as idle."""

PRELOADED, IN_TURN, WAITING, IDLE = range(4)
"""Tiers of models in demand, those that are served first before the others."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests that wait for a model; the oldest has waited since `since`."""

    num_waiting: int = 0
    since: float = 0.0


NO_DEMAND = Demand()


class _Contention(IntEnum):
    """Whether requests wait for a model that no agent has."""

    NONE = 0
    SHORT = 1
    LONG = 2


@dataclass(slots=True)
class _Usage:
    used_at: float
    serving_since: float | None = None


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tier of each model in demand, and when time alone changes them."""

    tiers: Mapping[str, int]
    reconcile_at: float | None = None


@dataclass(slots=True)
class _Times:
    """Times at which something changes by time alone."""

    now: float
    times: list[float] = field(default_factory=list)

    def has_come(self, time: float) -> bool:
        if time <= self.now:
            return True
        self.times.append(time)
        return False


class Usage:
    """When each desired model was used last, and since when it is served."""

    def __init__(self) -> None:
        self._usage: dict[str, _Usage] = {}

    def tiers(
        self,
        models: Sequence[DesiredModel],
        members: Iterable[Member],
        demands: Mapping[str, Demand],
        now: float,
    ) -> Tiers:
        """The tier of each model that is in demand now."""
        by_model: dict[str, list[Member]] = {model.name: [] for model in models}
        for member in members:
            if member.model in by_model:
                by_model[member.model].append(member)
        self._update(by_model, demands, now)
        times = _Times(now)
        contention = self._contention(models, by_model, demands, times)
        tiers = {}
        for model in models:
            demand = demands.get(model.name, NO_DEMAND)
            tier = self._tier(
                model, by_model[model.name], demand, contention=contention, times=times
            )
            if tier is not None:
                tiers[model.name] = tier
        return Tiers(tiers, min(times.times, default=None))

    def used_at(self, model: str) -> float:
        """When a model, of those that `tiers` was asked about, was used last."""
        return self._usage[model].used_at

    def _update(
        self, by_model: Mapping[str, list[Member]], demands: Mapping[str, Demand], now: float
    ) -> None:
        self._usage = {name: self._usage.get(name) or _Usage(used_at=now) for name in by_model}
        for name, members in by_model.items():
            usage = self._usage[name]
            usage.used_at = max([usage.used_at, *(member.report.used_at for member in members)])
            if name in demands or any(member.report.num_running for member in members):
                usage.used_at = now
            if not any(member.report.serves == name for member in members):
                usage.serving_since = None
            elif usage.serving_since is None:
                usage.serving_since = now

    def _contention(
        self,
        models: Sequence[DesiredModel],
        by_model: Mapping[str, list[Member]],
        demands: Mapping[str, Demand],
        times: _Times,
    ) -> _Contention:
        """Whether requests wait for a model that no agent has memory for, and for how long."""
        contention = _Contention.NONE
        for model in models:
            if model.name in demands and not _has_memory(by_model[model.name]):
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
        if not _has_memory(members):
            return WAITING if demand.num_waiting else None
        is_loading = any(each.is_changing and not each.waits_for_room for each in members)
        if contention is _Contention.NONE or is_loading:
            return IN_TURN
        if not demand.num_waiting and times.has_come(usage.used_at + IDLE_AFTER):
            return IDLE
        since = times.now if usage.serving_since is None else usage.serving_since
        is_over = contention is _Contention.LONG and times.has_come(since + MIN_TURN)
        return IDLE if is_over else IN_TURN

    def _has_expired(self, model: DesiredModel, usage: _Usage, times: _Times) -> bool:
        return model.idle_timeout is not None and times.has_come(usage.used_at + model.idle_timeout)


def _has_memory(members: Sequence[Member]) -> bool:
    """Whether some agent has a model, or loads it."""
    return any(not member.waits_for_room for member in members)
