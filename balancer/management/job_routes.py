"""`/api/v1/batches`: the batches of all callers, for operators."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from typing_extensions import TypedDict

from ...shared.errors import Conflict, NotFound, StoreUnavailable
from ..api.common.answering import json_response
from ..api.guard import Needs
from ..api.openapi.document import Doc, json_answer
from ..api.route import Route
from ..api.transport.fault_reports import RefusalReport
from ..jobs.batch import Batch, Status
from ..jobs.jobs import Jobs
from ..store.port import StoreAway

MAX_BATCHES = 100

logger = logging.getLogger(__name__)


class BatchView(TypedDict):
    """A batch and its progress. Times are in seconds since 1970.

    `lines_per_second` and `seconds_left` are null if unknown. `failure` is the code of the error
    that ended the whole batch, if any.
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
    """The open batches, then the newest ended ones."""

    batches: list[BatchView]


def routes(jobs: Jobs | None) -> list[Route]:
    """Return the routes. If `jobs` is `None`, the list of batches is empty."""

    async def batches(request: web.Request) -> web.Response:
        with _reached(request):
            found = [] if jobs is None else await jobs.batches.newest(MAX_BATCHES)
            body: BatchViews = {
                "batches": [await view(jobs, batch) for batch in found if jobs is not None]
            }
        return json_response(body)

    async def cancel(request: web.Request) -> web.Response:
        with _reached(request):
            if jobs is None:
                raise NotFound("this balancer stores no files, so it has no batches (--files)")
            batch = await jobs.batches.cancel(request.match_info["id"])
            return json_response(await view(jobs, batch))

    list_doc = Doc(
        "Batches",
        "The batches of all callers: at most a hundred, open batches first.",
        {200: json_answer("The batches.", BatchViews)},
        errors=(StoreUnavailable,),
    )
    cancel_doc = Doc(
        "CancelBatch",
        "Cancels a batch; results so far are saved in its files.",
        {200: json_answer("The batch.", BatchView)},
        errors=(NotFound, Conflict, StoreUnavailable),
    )
    path = "/api/v1/batches"
    return [
        Route("GET", path, Needs.VIEW, batches, list_doc),
        Route("POST", f"{path}/{{id}}/cancel", Needs.OPERATE, cancel, cancel_doc),
    ]


async def view(jobs: Jobs, batch: Batch) -> BatchView:
    """Return the operators' view of a batch, without its contents."""
    num_completed, num_failed = await jobs.counts(batch)
    pace = jobs.pace(batch, num_completed + num_failed)
    return {
        "id": batch.id,
        "caller": batch.caller.name,
        "endpoint": batch.endpoint,
        "status": batch.status,
        "created_at": batch.created_at,
        "expires_at": batch.expires_at,
        "total": batch.num_lines,
        "completed": num_completed,
        "failed": num_failed,
        "lines_per_second": pace.rate,
        "seconds_left": pace.seconds_left,
        "output_file_id": batch.output_file,
        "error_file_id": batch.error_file,
        "failure": batch.faults[0].code if batch.faults else None,
    }


@contextmanager
def _reached(request: web.Request) -> Iterator[None]:
    with RefusalReport(request):
        try:
            yield
        except StoreAway as error:
            logger.warning("a request for batches failed: %s", error)
            raise StoreUnavailable("batches cannot be reached now; try again") from error
