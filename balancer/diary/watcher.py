"""Derives the diary's events from the present and former state of the fleet.

A host is an agent's name: a restarted agent has another id and the same name. A host whose
connection broke counts as lost only if it has not connected again after a while. An issue has
ended only if it has not come back by then. So a connection or an issue that flickers makes one
event.

Invariants: a host is connected exactly while an agent of its name is. The event of its end waits
at most `SETTLE` seconds, or `RETURN` seconds after the balancer's start. At most `MAX_HOSTS`
absent hosts are known.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic_core import to_json

from ...shared.inference import AgentId
from ...shared.inference.adapters import adapted_name
from ...shared.messages import Issue
from ..fleet.view import AgentView, Departure
from ..store.records import MAX_HOSTS, DiaryEntry, DiaryKind, HostState, SavedHost

SETTLE = 10.0
"""Seconds until a host with a broken connection is lost, and a vanished issue has ended."""

RETURN = 60.0
"""Seconds after the balancer's start at which a host that has not returned is lost."""

_Seen = tuple[str, str]
"""An issue: the id of its agent or model, and its code."""

_WHY: Mapping[HostState, str] = {
    "here": "it is connected",
    "drained": "it was drained before",
    "stopped": "it was stopped",
    "lost": "its connection was lost",
}


@dataclass(slots=True)
class _SeenAgent:
    """An agent, with the `models` that it serves and their adapters."""

    name: str
    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class Observed:
    """Records to write: entries of the diary, and hosts that are new or different."""

    entries: tuple[DiaryEntry, ...] = ()
    hosts: tuple[SavedHost, ...] = ()


class Watcher:
    """Watches the fleet. Times are seconds since 1970."""

    def __init__(self) -> None:
        self.hosts: dict[str, SavedHost] = {}
        self._agents: dict[AgentId, _SeenAgent] = {}
        self._num_here: Counter[str] = Counter()
        self._going: dict[str, tuple[float, HostState]] = {}
        """Absent hosts without an event yet: when the event is due, and why they left."""
        self._issues: dict[_Seen, tuple[str, Issue]] = {}
        self._ending: dict[_Seen, float] = {}
        self._failed: set[str] = set()

    def restore(self, hosts: Iterable[SavedHost], now: float) -> None:
        """Restore the hosts from before the balancer's start; hosts that were connected may
        return.
        """
        self.hosts = {host.name: host for host in hosts}
        here = (host.name for host in self.hosts.values() if host.state == "here")
        self._going = dict.fromkeys(here, (now + RETURN, "lost"))

    def know(self, hosts: Iterable[SavedHost]) -> None:
        """Replace the known hosts by the hosts that all balancers know."""
        known = {host.name: host for host in hosts}
        here = self._num_here.keys() | self._going.keys()
        self.hosts = known | {name: self.hosts[name] for name in here if name in self.hosts}

    def forget(self, name: str) -> None:
        """Remove a host that is not connected."""
        self.hosts.pop(name, None)
        self._going.pop(name, None)

    @property
    def ids(self) -> set[AgentId]:
        """Return the ids of the connected agents."""
        return set(self._agents)

    def is_here(self, name: str) -> bool:
        """Whether an agent of this name is connected."""
        return name in self._num_here

    def seen(self, now: float) -> tuple[SavedHost, ...]:
        """Return all connected hosts, with the present time as the time when they were seen."""
        for name in self._num_here:
            self.hosts[name] = replace(self.hosts[name], last_seen=now)
        return tuple(self.hosts[name] for name in sorted(self._num_here))

    # ---- events

    def agents(
        self,
        changed: Iterable[AgentView],
        left: Mapping[AgentId, Departure | None],
        now: float,
    ) -> Observed:
        """Take agents that are new or different, and agents that left."""
        entries: list[DiaryEntry] = []
        hosts: dict[str, SavedHost] = {}
        for id, departure in left.items():
            self._drop_issues(id)
            if (agent := self._agents.pop(id, None)) is None:
                continue
            self._num_here[agent.name] -= 1
            if not self._num_here[agent.name]:
                del self._num_here[agent.name]
                host = replace(self.hosts[agent.name], last_seen=now)
                self.hosts[agent.name] = hosts[agent.name] = host
                why: HostState = "lost" if departure is None else departure
                self._going[agent.name] = (now + (SETTLE if why == "lost" else 0.0), why)
        for view in changed:
            entries += self._changed(view, hosts, now)
            entries += self.issues(view.id, view.name, view.issues, now).entries
        self._bound()
        due = self.due(now)
        return Observed((*entries, *due.entries), (*hosts.values(), *due.hosts))

    def failed(self, issues: Mapping[str, Issue], now: float) -> Observed:
        """Take the desired models and adapters that have failed to load, by name."""
        new = issues.keys() - self._failed
        self._failed = set(issues)
        return Observed(
            tuple(_entry(now, "model_failed", name, issues[name].message) for name in sorted(new))
        )

    def issues(self, owner: str, subject: str, found: Iterable[Issue], now: float) -> Observed:
        """Take all issues of `owner`; people call it `subject`."""
        here = {(owner, issue.code): (subject, issue) for issue in found}
        entries = [
            _entry(now, "issue_began", subject, f"{issue.message} ({issue.code})")
            for seen, (_, issue) in here.items()
            if seen not in self._issues
        ]
        for seen in [seen for seen in self._issues if seen[0] == owner and seen not in here]:
            self._ending.setdefault(seen, now + SETTLE)
        for seen in here:
            self._ending.pop(seen, None)
        self._issues |= here
        return Observed(tuple(entries))

    # ---- time

    def next_deadline(self) -> float | None:
        """Return the time at which to call `due`."""
        times = [until for until, _ in self._going.values()]
        return min([*times, *self._ending.values()], default=None)

    def due(self, now: float) -> Observed:
        """Return the events that have settled."""
        entries, hosts = [], []
        for name in [name for name, (until, _) in self._going.items() if until <= now]:
            _, why = self._going.pop(name)
            host = replace(self.hosts[name], state=why, since=self.hosts[name].last_seen)
            self.hosts[name] = host
            hosts.append(host)
            entries.append(_entry(now, "host_went", name, _WHY[why]))
        for seen in [seen for seen, until in self._ending.items() if until <= now]:
            del self._ending[seen]
            subject, issue = self._issues.pop(seen)
            message = f"{issue.message} ({issue.code})"
            entries.append(_entry(now, "issue_ended", subject, message))
        return Observed(tuple(entries), tuple(hosts))

    # ---- inside

    def _changed(
        self, view: AgentView, hosts: dict[str, SavedHost], now: float
    ) -> Iterator[DiaryEntry]:
        models = _served(view)
        old = self._agents.get(view.id)
        before = self.hosts.get(view.name)
        was_here = self.is_here(view.name) or view.name in self._going
        self._going.pop(view.name, None)
        if old is None:
            self._num_here[view.name] += 1
        self._agents[view.id] = _SeenAgent(view.name, models)
        document = _document(view)
        if before is None or not was_here:
            first = now if before is None else before.first_seen
            host = SavedHost(
                name=view.name,
                state="here",
                since=now,
                first_seen=first,
                last_seen=now,
                document=document,
            )
            yield _entry(now, "host_came", view.name, _introduced(view, is_new=before is None))
        else:
            host = replace(before, state="here", last_seen=now, document=document)
        if before is None or not was_here or before.document != document:
            hosts[view.name] = host
        self.hosts[view.name] = host
        for model in sorted(models if old is None else models - old.models):
            yield _entry(now, "model_loaded", model, f"{view.name} serves it")

    def _drop_issues(self, owner: str) -> None:
        """Forget the issues of an agent that left, because it is unknown whether they ended."""
        for seen in [seen for seen in self._issues if seen[0] == owner]:
            del self._issues[seen]
            self._ending.pop(seen, None)

    def _bound(self) -> None:
        surplus = len(self.hosts) - MAX_HOSTS
        if surplus > 0:
            gone = [host for host in self.hosts.values() if not self.is_here(host.name)]
            for host in sorted(gone, key=lambda each: each.last_seen)[:surplus]:
                self.forget(host.name)


def _served(view: AgentView) -> frozenset[str]:
    """Return the models and adapters that the agent serves; each of several has its own state."""
    if len(view.models) > 1:
        infos = [each.info for each in view.models if each.state != "failed"]
    else:
        infos = [] if view.state == "failed" else [view.model]
    return frozenset(
        name
        for info in infos
        if info is not None
        for name in (info.name, *(adapted_name(info.name, each) for each in info.adapters))
    )


def _entry(at: float, kind: DiaryKind, subject: str, message: str) -> DiaryEntry:
    return DiaryEntry(at=at, kind=kind, subject=subject, message=message)


def _document(view: AgentView) -> str:
    """Return the stored form of a host, as JSON."""
    facts = view.facts
    return to_json(
        {
            "labels": view.labels,
            "devices": facts.devices,
            "cores": facts.cores,
            "memory": facts.memory,
            "platform": facts.platform,
            "version": view.version,
        }
    ).decode()


def _introduced(view: AgentView, *, is_new: bool) -> str:
    facts = view.facts
    parts = [f"version {view.version}"]
    if facts.cores:
        parts.append(f"{facts.cores} cores")
    if facts.memory:
        parts.append(f"{facts.memory / 2**30:.0f} GiB of memory")
    parts += [device.name for device in facts.devices]
    return f"it connected{' for the first time' if is_new else ''}: {', '.join(parts)}"
