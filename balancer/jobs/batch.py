"""A batch and its states, as in OpenAI's API.

    validating ──► in_progress ──► finalizing ──► completed, expired
        │   └─────────► failed
        └──────────────┴─► cancelling ──► cancelled

A batch whose time is over stays `in_progress` until each line has a result; each line that did not
run gets an error. A cancelled batch keeps the results that it has.
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
"""The maximum number of errors that are reported for an input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error in an input, with the number of its line."""

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCaller:
    """The caller that created a batch. The lines of the batch run as requests of this caller."""

    name: str
    owner: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """The batch that a caller asks for. `window` is in seconds."""

    input_file: str
    endpoint: str
    window: float
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch. Times are in seconds since 1970.

    The numbers of completed and failed lines are 0 until the batch has ended.
    """

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
        """Whether the batch has ended. An ended batch does not change."""
        return self.status in ENDED

    @property
    def is_running(self) -> bool:
        """Whether the lines of the batch run or will run soon."""
        return self.status == "in_progress"

    def begun(self, num_lines: int, now: float) -> "Batch":
        """Return the batch after the check of its input, which has `num_lines` lines."""
        self._require("validating")
        return replace(self, status="in_progress", num_lines=num_lines, in_progress_at=now)

    def failed(self, faults: tuple[Fault, ...], now: float) -> "Batch":
        """Return the batch as failed because of `faults`."""
        if self.has_ended:
            raise ValueError(f"{self.id} is {self.status}")
        return replace(self, status="failed", faults=faults[:MAX_FAULTS], failed_at=now)

    def cancelling(self, now: float) -> "Batch":
        """Return the batch as cancelled. Raises `Conflict` if no line can run any more."""
        if self.status == "cancelling":
            return self
        if self.status not in ("validating", "in_progress"):
            raise Conflict(f"the batch is {self.status}; only a running batch can be cancelled")
        return replace(self, status="cancelling", stop="cancelled", cancelling_at=now)

    def expiring(self, now: float) -> "Batch":
        """Return the batch as expired if its time is over. No further lines run then."""
        if now < self.expires_at or self.stop is not None or not self.is_running:
            return self
        return replace(self, stop="expired")

    def finalizing(self, now: float) -> "Batch":
        """Return the batch after the last line has its result. The results are joined next."""
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
        """Return the batch as ended with its result files."""
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
    """Return the batch as a document for the store."""
    return _adapter.dump_json(batch, exclude_defaults=True).decode()


def from_document(document: str) -> Batch:
    """Return the batch from its document. Raises `ValueError` if this version cannot read it."""
    return _adapter.validate_json(document)
