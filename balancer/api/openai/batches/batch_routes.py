"""`/v1/batches` over HTTP."""

from aiohttp import web

from ....jobs.core.batch import Batch
from ....jobs.jobs import Jobs
from ...common.answering import json_response
from ...transport.bodies import parsed
from ...transport.callers import caller_of
from .answer_types import BatchObject
from .batch_object import batch_object
from .boundary import jobs_for
from .pages import batch_list, parse_batch_page, unknown_after
from .requests import parse_batch


def routes(jobs: Jobs | None) -> list[web.AbstractRouteDef]:
    """The routes. Without `jobs` they say how to get them."""
    handlers = _Handlers(jobs)
    return [
        web.post("/v1/batches", handlers.create),
        web.get("/v1/batches", handlers.list),
        web.get("/v1/batches/{id}", handlers.retrieve),
        web.post("/v1/batches/{id}/cancel", handlers.cancel),
    ]


class _Handlers:
    def __init__(self, jobs: Jobs | None) -> None:
        self._jobs = jobs

    async def create(self, request: web.Request) -> web.Response:
        wanted = await parsed(request, parse_batch)
        with jobs_for(request, self._jobs) as jobs:
            batch = await jobs.batches.create(wanted, caller_of(request))
            return json_response(await shown(jobs, batch))

    async def list(self, request: web.Request) -> web.Response:
        with jobs_for(request, self._jobs) as jobs:
            page = parse_batch_page(request.query)
            owner = caller_of(request).owner
            if page.after is not None and not await jobs.batches.has(page.after, owner):
                raise unknown_after(page.after)
            found = await jobs.batches.page(owner, after=page.after, limit=page.limit + 1)
            return json_response(
                batch_list([await shown(jobs, batch) for batch in found], page.limit)
            )

    async def retrieve(self, request: web.Request) -> web.Response:
        with jobs_for(request, self._jobs) as jobs:
            id = request.match_info["id"]
            batch = await jobs.batches.find(id, caller_of(request).owner)
            return json_response(await shown(jobs, batch))

    async def cancel(self, request: web.Request) -> web.Response:
        with jobs_for(request, self._jobs) as jobs:
            id = request.match_info["id"]
            await jobs.batches.find(id, caller_of(request).owner)
            return json_response(await shown(jobs, await jobs.batches.cancel(id)))


async def shown(jobs: Jobs, batch: Batch) -> BatchObject:
    """With the counts of now."""
    return batch_object(batch, *await jobs.counts(batch))
