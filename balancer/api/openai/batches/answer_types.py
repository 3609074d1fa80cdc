"""What `/v1/files` and `/v1/batches` answer, as types; the OpenAPI document is made of them."""

from typing import Generic, Literal, TypeVar

from typing_extensions import TypedDict

from ....jobs.core.batch import Status

T = TypeVar("T")


class ListOf(TypedDict, Generic[T]):
    """One page of a list."""

    object: Literal["list"]
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileObject(TypedDict):
    """A file. Times in Unix seconds."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]


class FileList(ListOf[FileObject]):
    """One page of files."""


class DeletedFile(TypedDict):
    """What is said of a file that is gone."""

    id: str
    object: Literal["file"]
    deleted: bool


class BatchFault(TypedDict):
    """What is wrong with a batch's input."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchFaults(TypedDict):
    """Everything that is wrong with it; at most a hundred."""

    object: Literal["list"]
    data: list[BatchFault]


class RequestCounts(TypedDict):
    """The lines of a batch."""

    total: int
    completed: int
    failed: int


class BatchObject(TypedDict):
    """A batch. Times in Unix seconds."""

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


class BatchList(ListOf[BatchObject]):
    """One page of batches."""
