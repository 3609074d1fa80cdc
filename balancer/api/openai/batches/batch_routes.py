"""`/v1/batches` over HTTP."""

from aiohttp import web

from ....jobs.core.batch import Batch
from ....jobs.jobs import Jobs
from ...access.permissions import Needs
from ...route import OPENAI, Route
from ...transport.bodies import BODIES
from ...transport.callers import caller_of
from .boundary import answering, check_after
from .pages import BatchObject, BatchPage, ListOf, batch_object, page_of, parse_page
from .requests import parse_batch


def routes(jobs: Jobs | None) -> list[Route]:
    """The routes. Without `jobs` they say how to get them."""
    return [
        Route("POST", "/v1/batches", Needs.CALL, answering(jobs, _create), OPENAI),
        Route("GET", "/v1/batches", Needs.CALL, answering(jobs, _list), OPENAI),
        Route("GET", "/v1/batches/{id}", Needs.CALL, answering(jobs, _retrieve), OPENAI),
        Route("POST", "/v1/batches/{id}/cancel", Needs.CALL, answering(jobs, _cancel), OPENAI),
    ]


async def _create(request: web.Request, jobs: Jobs) -> BatchObject:
    wanted = await request.app[BODIES].parsed(request, parse_batch)
    return await shown(jobs, await jobs.batches.create(wanted, caller_of(request)))


async def _list(request: web.Request, jobs: Jobs) -> ListOf[BatchObject]:
    page = parse_page(BatchPage, request.query)
    owner = caller_of(request).owner
    await check_after(page.after, owner, jobs.batches)
    found = await jobs.batches.page(owner, after=page.after, limit=page.limit + 1)
    return page_of([await shown(jobs, batch) for batch in found], page.limit)


async def _retrieve(request: web.Request, jobs: Jobs) -> BatchObject:
    return await shown(jobs, await _batch(request, jobs))


async def _cancel(request: web.Request, jobs: Jobs) -> BatchObject:
    batch = await _batch(request, jobs)
    return await shown(jobs, await jobs.batches.cancel(batch.id))


async def _batch(request: web.Request, jobs: Jobs) -> Batch:
    return await jobs.batches.find(request.match_info["id"], caller_of(request).owner)


async def shown(jobs: Jobs, batch: Batch) -> BatchObject:
    """With the counts of now."""
    return batch_object(batch, *await jobs.counts(batch))
