"""Everybody's batches over REST."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from ....shared.errors import NotFound, StoreUnavailable
from ...api.common.answering import json_response
from ...api.transport.door_reports import refusals_reported
from ...jobs.core.batch import Batch
from ...jobs.jobs import Jobs
from ...store.port import StoreAway
from .answer_types import BatchView, BatchViews

MAX_BATCHES = 100

logger = logging.getLogger(__name__)


def routes(jobs: Jobs | None) -> list[web.AbstractRouteDef]:
    """The routes; without `jobs` there are no batches."""

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
                raise NotFound("this balancer keeps no batches")
            batch = await jobs.batches.cancel(request.match_info["id"])
            return json_response(await view(jobs, batch))

    return [
        web.get("/api/v1/batches", batches),
        web.post("/api/v1/batches/{id}/cancel", cancel),
    ]


async def view(jobs: Jobs, batch: Batch) -> BatchView:
    """A batch as operators see it: never what is in it."""
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
    with refusals_reported(request):
        try:
            yield
        except StoreAway as error:
            logger.warning("batches cannot be reached: %s", error)
            raise StoreUnavailable("batches cannot be reached now; try again") from error
