"""A batch and its states, as OpenAI's: a value, and what follows it.

    validating ──► in_progress ──► finalizing ──► completed, expired
        │   └─────────► failed
        └──────────────┴─► cancelling ──► cancelled

One whose time is over goes on as `in_progress` until each line has its result; those that did not
run have an error line. A cancelled one ends with the results that there are.
"""

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from ...shared.errors import Conflict
from ...shared.strict import LAZY

Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]

ENDED: frozenset[Status] = frozenset({"failed", "completed", "expired", "cancelled"})

MAX_FAULTS = 100
"""Faults of an input that are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of an input, and its line."""

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCaller:
    """The caller that made a batch: its lines run as requests of that caller."""

    name: str
    owner: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A caller's new batch. `window` in seconds, and as the caller wrote it."""

    input_file: str
    endpoint: str
    window: float
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Times are seconds since 1970. The numbers of lines are those at the end, before that 0."""

    __pydantic_config__ = LAZY

    id: str
    endpoint: str
    input_file: str
    completion_window: str
    caller: BatchCaller
    created_at: float
    expires_at: float
    status: Status = "validating"
    metadata: dict[str, str] | None = None
    stop: Literal["cancelled", "expired"] | None = None
    in_progress_at: float | None = None
    finalizing_at: float | None = None
    completed_at: float | None = None
    failed_at: float | None = None
    expired_at: float | None = None
    cancelling_at: float | None = None
    cancelled_at: float | None = None
    num_lines: int = 0
    num_completed: int = 0
    num_failed: int = 0
    output_file: str | None = None
    error_file: str | None = None
    faults: tuple[Fault, ...] = ()
    output_expires_after: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the batch is over, and will not change any more."""
        return self.status in ENDED

    @property
    def is_running(self) -> bool:
        """Whether its lines run or are about to run."""
        return self.status == "in_progress"

    def begun(self, num_lines: int, now: float) -> "Batch":
        """Its input is well, and has so many lines."""
        self._require("validating")
        return replace(self, status="in_progress", num_lines=num_lines, in_progress_at=now)

    def failed(self, faults: tuple[Fault, ...], now: float) -> "Batch":
        """End the batch, which cannot start or go on."""
        if self.has_ended:
            raise ValueError(f"{self.id} is {self.status}")
        return replace(self, status="failed", faults=faults[:MAX_FAULTS], failed_at=now)

    def cancelling(self, now: float) -> "Batch":
        """Its owner wants no more of it. Raises `Conflict` once it is too late."""
        if self.status == "cancelling":
            return self
        if self.status not in ("validating", "in_progress"):
            raise Conflict(f"the batch is {self.status}; only one that runs can be cancelled")
        return replace(self, status="cancelling", stop="cancelled", cancelling_at=now)

    def expiring(self, now: float) -> "Batch":
        """Its time is over, if it is: what has not run will not."""
        if now < self.expires_at or self.stop is not None or not self.is_running:
            return self
        return replace(self, stop="expired")

    def finalizing(self, now: float) -> "Batch":
        """All lines have their results, which are put together next."""
        if self.status == "cancelling":
            return self
        self._require("in_progress")
        return replace(self, status="finalizing", finalizing_at=now)

    def ended(
        self,
        now: float,
        *,
        num_completed: int,
        num_failed: int,
        output_file: str | None,
        error_file: str | None,
    ) -> "Batch":
        """Its results are files now."""
        self._require("finalizing", "cancelling")
        last = replace(
            self,
            num_completed=num_completed,
            num_failed=num_failed,
            output_file=output_file,
            error_file=error_file,
        )
        if self.stop == "cancelled":
            return replace(last, status="cancelled", cancelled_at=now)
        if self.stop == "expired":
            return replace(last, status="expired", expired_at=now)
        return replace(last, status="completed", completed_at=now)

    def _require(self, *statuses: Status) -> None:
        if self.status not in statuses:
            raise ValueError(f"{self.id} is {self.status}, not {' or '.join(statuses)}")


_adapter = TypeAdapter(Batch)


def to_document(batch: Batch) -> str:
    """The document that saves a batch."""
    return _adapter.dump_json(batch, exclude_defaults=True).decode()


def from_document(document: str) -> Batch:
    """The batch that a document saved."""
    return _adapter.validate_json(document)
