"""Decides which changes may happen now, so that a model with two agents always has one.

A change that takes no model away happens at once. A change that interrupts a model waits until
another agent serves the model, and until the agent that was interrupted earlier serves again. A
failure stops all changes to the same assignment. The last agent of a model changes only if there
is no other agent to wait for.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from ...shared.inference import AgentId
from ...shared.models.assignments import Assignment, needs_reload
from .members import Failures, Member


@dataclass(frozen=True, slots=True)
class Reassignment:
    """An order for one agent. `interrupts` is the model that the agent serves until then."""

    member: Member
    assignment: Assignment | None
    interrupts: str | None = None


class Rollout:
    """The changes of one reconciliation.

    Each of the `protected` models must always have an agent.
    """

    def __init__(
        self,
        members: Sequence[Member],
        targets: Mapping[AgentId, Assignment | None],
        *,
        protected: Set[str],
        failures: Failures,
        now: float,
    ) -> None:
        self._members = members
        self._targets = targets
        self._protected = protected
        self._failures = failures
        self._now = now
        self._serving = Counter(
            member.report.serves
            for member in members
            if member.report.serves is not None and not member.report.is_cordoned
        )
        self._interrupted = {name for member in members if (name := member.interrupts) is not None}
        self._coming = Counter(self._comings())

    def _comings(self) -> Iterable[str]:
        """Yield the models that agents are to serve and do not serve yet."""
        for member in self._members:
            target = self._targets.get(member.id)
            if target is not None and member.report.serves != target.name:
                yield target.name

    def changes(self) -> list[Reassignment]:
        """Return the changes that may happen now."""
        due = [change for member in self._members if (change := self._due(member))]
        free = [change for change in due if _is_free(change)]
        others = [change for change in due if not _is_free(change)]
        stopped = [change for change in others if self._is_stopped(change)]
        waiting = [change for change in others if not self._is_stopped(change)]
        allowed = [change for change in waiting if self._may_interrupt(change)]
        if allowed or free or self._is_anyone_changing():
            return [*free, *allowed]
        # All wait for each other, as when two models change places: one of them has to begin.
        stuck = {change.assignment.name for change in stopped if change.assignment is not None}
        return [change for change in waiting if change.interrupts not in stuck][:1]

    def _is_anyone_changing(self) -> bool:
        """Return whether an agent is changing.

        An agent that waits for memory does not count, since it waits for other agents.
        """
        return any(each.is_changing and not each.waits_for_room for each in self._members)

    def _due(self, member: Member) -> Reassignment | None:
        if member.id not in self._targets:
            return None
        target = self._targets[member.id]
        serves = member.report.serves
        if _waits_for_nothing(member, target):
            return Reassignment(member, target)
        if member.assigned == target:
            return self._again(member, target) or self._by_other_hosts(member, target)
        if target is None and self._waits_for_retry(member):
            return None
        if serves is None or serves not in self._protected or is_live(member, target):
            return Reassignment(member, target)
        return Reassignment(member, target, member.interrupts or serves)

    def _waits_for_retry(self, member: Member) -> bool:
        """Return whether an idle agent's assignment failed and its host still has the failure."""
        assigned = member.assigned
        if assigned is None or not member.has_failed or member.report.serves is not None:
            return False
        return self._failures.of(member.report.host_id, assigned) is not None

    def _again(self, member: Member, target: Assignment | None) -> Reassignment | None:
        """Return a retry, if it interrupts nothing or an operator wants it."""
        if target is None or not member.has_failed:
            return None
        if not self._failures.may_try(member.report.host_id, target, self._now):
            return None
        serves = member.report.serves
        failure = self._failures.of(member.report.host_id, target)
        if serves is not None and not (failure is not None and failure.is_forced):
            return None
        return Reassignment(member, target, serves if serves in self._protected else None)

    def _by_other_hosts(self, member: Member, target: Assignment | None) -> Reassignment | None:
        """Return the same assignment with other hosts that may send files without TLS, if they
        changed.
        """
        assigned = member.assigned
        if target is None or assigned is None or assigned.http_hosts == target.http_hosts:
            return None
        serves = member.report.serves
        takes_away = member.has_failed and serves in self._protected
        return Reassignment(member, target, serves if takes_away else None)

    def _is_stopped(self, change: Reassignment) -> bool:
        target = change.assignment
        return target is not None and self._failures.stops(target) is not None

    def _may_interrupt(self, change: Reassignment) -> bool:
        model = change.interrupts
        if model is None or model in self._interrupted:
            return False
        target = None if change.assignment is None else change.assignment.name
        if target in self._interrupted:
            return False
        is_last = self._serving[model] <= 1
        if is_last and self._coming[model]:
            return False
        self._serving[model] -= 1
        self._interrupted.add(model)
        return True


def _is_free(change: Reassignment) -> bool:
    """Return whether the change interrupts nothing, or the agent is interrupted already."""
    return change.interrupts is None or change.member.interrupts is not None


def _waits_for_nothing(member: Member, target: Assignment | None) -> bool:
    """Return whether the agent waits for memory but `target` loads into what is left."""
    if target is None or member.assigned != target or not member.waits_for_room:
        return False
    return target.takes_what_is_left and not member.assigned.takes_what_is_left


def is_live(member: Member, target: Assignment | None) -> bool:
    """Return whether the agent can serve `target` without a reload."""
    assigned = member.assigned
    if target is None or assigned is None or member.has_failed or member.is_changing:
        return False
    slots = member.report.slots if assigned.slots is None else assigned.slots
    return not needs_reload(assigned, target, loaded_slots=slots)
