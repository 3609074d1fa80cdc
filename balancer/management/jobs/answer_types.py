"""What `/api/v1/batches` answers; the OpenAPI document is made of these types."""

from typing_extensions import TypedDict

from ...jobs.core.batch import Status


class BatchView(TypedDict):
    """A batch and how far it is. Times are seconds since 1970.

    `lines_per_second` and `seconds_left` are null where the balancer does not know them. `failure`
    is the code of what ended the whole batch, if something did.
    """

    id: str
    caller: str
    endpoint: str
    status: Status
    created_at: float
    expires_at: float
    total: int
    completed: int
    failed: int
    lines_per_second: float | None
    seconds_left: float | None
    output_file_id: str | None
    error_file_id: str | None
    failure: str | None


class BatchViews(TypedDict):
    """Those that are open first, then the newest."""

    batches: list[BatchView]
