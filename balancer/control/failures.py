"""Failed loads of hosts: when each is tried again, and which changes stop because of it.

Invariant: one failure for each host and model, of the last desired assignment.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...shared.inference import AgentId
from ...shared.messages import Issue
from ...shared.models.assignments import Assignment
from .members import Member

FIRST_RETRY = 30.0
"""Seconds until an agent that serves nothing tries again; the pause doubles each time."""

LAST_RETRY = 600.0

OF_THE_HOST = frozenset({"too_large", "does_not_fit", "disk_full", "denied", "no_memory"})
"""Codes of issues that say nothing about other agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An agent of a host could not load a model, `num_tries` times in a row.

    `is_forced`: an operator wants the host to try again at once.
    """

    host: AgentId
    agent_name: str
    assignment: Assignment
    issues: tuple[Issue, ...]
    num_tries: int
    retry_at: float
    stops_others: bool
    is_forced: bool = False


class Failures:
    """Failures by host and model; the host's id is common to its agents."""

    def __init__(self) -> None:
        self._failures: dict[tuple[AgentId, str], Failure] = {}

    def __iter__(self) -> Iterator[Failure]:
        return iter(self._failures.values())

    def of(self, host: AgentId, assignment: Assignment) -> Failure | None:
        """Return the failure of this host with exactly this assignment, if any."""
        failure = self._failures.get((host, assignment.name))
        return failure if failure is not None and failure.assignment == assignment else None

    def codes(self, assignment: Assignment) -> Mapping[AgentId, str]:
        """Return each host that failed with exactly this assignment, with the code of its issue."""
        found = (each for each in self if each.assignment == assignment and each.issues)
        return {each.host: each.issues[0].code for each in found}

    def may_try(self, host: AgentId, assignment: Assignment, now: float) -> bool:
        """Return whether the host may try the assignment: it never failed, or a retry is due."""
        failure = self.of(host, assignment)
        return failure is None or failure.retry_at <= now

    def stops(self, assignment: Assignment) -> Failure | None:
        """Return the failure because of which no further agent gives up its model for this
        assignment."""
        found = (f for f in self if f.stops_others and f.assignment == assignment)
        return next(found, None)

    def failed(self, member: Member, *, is_new: bool, now: float) -> None:
        """Record that an agent could not carry out its order.

        `is_new`: this is its first report since the order.
        """
        assignment = member.assigned
        if assignment is None:
            return
        host = member.report.host_id
        old = self.of(host, assignment)
        if old is not None and not is_new:
            return
        num_tries = 1 if old is None else old.num_tries + 1
        issues = member.report.issues
        is_of_host = bool(issues) and all(issue.code in OF_THE_HOST for issue in issues)
        self._failures[host, assignment.name] = Failure(
            host=host,
            agent_name=member.report.name,
            assignment=assignment,
            issues=issues,
            num_tries=num_tries,
            retry_at=now + min(FIRST_RETRY * 2 ** min(num_tries - 1, 10), LAST_RETRY),
            stops_others=not is_of_host or member.report.serves is not None,
        )

    def succeeded(self, host: AgentId, model: str) -> None:
        """Record that the host serves the model."""
        self._failures.pop((host, model), None)

    def retry(self, host: AgentId, now: float) -> None:
        """Let the host try again at once, as an operator wants."""
        for key, failure in self._failures.items():
            if key[0] == host:
                self._failures[key] = replace(
                    failure, retry_at=now, is_forced=True, stops_others=False
                )

    def keep_only(self, desired: Mapping[str, Assignment], hosts: Iterable[AgentId]) -> None:
        """Forget failures of assignments that are no longer desired, and of hosts that left."""
        here = set(hosts)
        self._failures = {
            key: failure
            for key, failure in self._failures.items()
            if desired.get(key[1]) == failure.assignment and key[0] in here
        }

    def next_retry(self, now: float, model: str | None = None) -> float | None:
        """Return when the next host may try again, with this model or any."""
        found = (f for f in self if model is None or f.assignment.name == model)
        return min((f.retry_at for f in found if f.retry_at > now), default=None)
