"""Every request and query that was accepted and has not ended, with its deadline.

Invariant: each is armed for its deadline.
"""

from collections.abc import Callable, Iterator, Mapping

from ...shared.errors import RequestError
from ...shared.inference import RequestId
from .change_log import ChangeLog
from .deadlines import Deadlines
from .lifecycle import Lifecycle


class Lives:
    """The requests and queries by id, oldest first."""

    def __init__(self, changes: ChangeLog) -> None:
        self._changes = changes
        self._lives: dict[RequestId, Lifecycle] = {}
        self._deadlines: Deadlines[Lifecycle] = Deadlines()
        self.get: Callable[[RequestId], Lifecycle | None] = self._lives.get
        """One that has not ended; asked for each token."""
        self.arm = self._deadlines.arm
        self.next_deadline = self._deadlines.next
        self.due = self._deadlines.due

    def __len__(self) -> int:
        return len(self._lives)

    def __contains__(self, id: object) -> bool:
        return id in self._lives

    def __iter__(self) -> Iterator[Lifecycle]:
        return iter(self._lives.values())

    def add(self, life: Lifecycle) -> None:
        """Add an accepted request; call `arm` before time passes."""
        self._lives[life.id] = life
        self._changes.advance()

    def remove(self, life: Lifecycle) -> None:
        """Remove a request that has ended."""
        del self._lives[life.id]
        self._deadlines.disarm(life)
        self._changes.advance()

    def refused(self, errors: Mapping[str, RequestError]) -> dict[Lifecycle, RequestError]:
        """Return the requests that would wait in vain, with their errors by model name.

        If a later attempt may help, requests whose answer has begun wait for it.
        """
        found = {}
        for each in self:
            error = errors.get(each.asked.model or "") if each.is_waiting else None
            if error is not None and not (error.retryable and each.has_streamed):
                found[each] = error
        return found

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._deadlines.check_integrity()
        for each in self:
            if each.armed_at is None:
                raise RuntimeError(f"{each.id} has no deadline, or has ended")
