"""Answers of `/v1/files` and `/v1/batches`: files, batches, and pages of them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from .....shared.strict import FROZEN
from .....shared.validation import invalid
from ....jobs.batch import Batch, Status
from ....store.job_records import SavedFile

# ---- what is answered


T = TypeVar("T")


class ListOf(TypedDict, Generic[T]):
    """One page of a list."""

    object: Literal["list"]
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileObject(TypedDict):
    """A file; times are in seconds since 1970."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]


class DeletedFile(TypedDict):
    """The answer to the deletion of a file."""

    id: str
    object: Literal["file"]
    deleted: bool


class BatchFault(TypedDict):
    """An error in a batch's input."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchFaults(TypedDict):
    """The errors in a batch's input, at most a hundred."""

    object: Literal["list"]
    data: list[BatchFault]


class RequestCounts(TypedDict):
    """Counts of the lines of a batch."""

    total: int
    completed: int
    failed: int


class BatchObject(TypedDict):
    """A batch; times are in seconds since 1970."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchFaults | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


def batch_object(batch: Batch, num_completed: int, num_failed: int) -> BatchObject:
    """Return the batch in the form of answers, with its present counts."""
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {
            "object": "list",
            "data": [
                {"code": fault.code, "message": fault.message, "param": None, "line": fault.line}
                for fault in batch.faults
            ],
        }
        if batch.faults
        else None,
        "input_file_id": batch.input_file,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file,
        "error_file_id": batch.error_file,
        "created_at": int(batch.created_at),
        "in_progress_at": _whole(batch.in_progress_at),
        "expires_at": int(batch.expires_at),
        "finalizing_at": _whole(batch.finalizing_at),
        "completed_at": _whole(batch.completed_at),
        "failed_at": _whole(batch.failed_at),
        "expired_at": _whole(batch.expired_at),
        "cancelling_at": _whole(batch.cancelling_at),
        "cancelled_at": _whole(batch.cancelled_at),
        "request_counts": {
            "total": batch.num_lines,
            "completed": num_completed,
            "failed": num_failed,
        },
        "metadata": batch.metadata,
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)


# ---- pages


Text = Annotated[str, Field(max_length=256)]
Shown = TypeVar("Shown", FileObject, BatchObject)
P = TypeVar("P", bound=BaseModel)


class BatchPage(BaseModel):
    """The requested page: up to `limit` batches after the batch `after`, newest first."""

    model_config = FROZEN

    after: Text | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class FilePage(BaseModel):
    """The requested page: up to `limit` files after the file with the id `after`."""

    model_config = FROZEN

    after: Text | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    purpose: Text | None = None


def parse_page(kind: type[P], query: Mapping[str, str]) -> P:
    """Parse a query string. Raises `InvalidRequest`."""
    try:
        return kind.model_validate(dict(query))
    except ValidationError as error:
        raise invalid(error, to_json(dict(query))) from error


def file_object(file: SavedFile) -> FileObject:
    """Return a file in the form of answers."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.num_bytes,
        "created_at": int(file.created_at),
        "expires_at": None if file.expires_at is None else int(file.expires_at),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def page_of(objects: Sequence[Shown], limit: int) -> ListOf[Shown]:
    """Return a page; `objects` may have one more entry than the page."""
    data = list(objects[:limit])
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(objects) > limit,
    }
