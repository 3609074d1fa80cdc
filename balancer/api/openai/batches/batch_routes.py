"""`/v1/batches` over HTTP."""

from dataclasses import dataclass
from typing import Annotated, Literal

from aiohttp import web
from pydantic import Field, TypeAdapter

from .....shared.errors import InvalidRequest
from .....shared.quantities import parse_duration
from .....shared.strict import STRICT, at_most
from .....shared.validation import parse_json
from ....jobs.batch import Batch, NewBatch
from ....jobs.jobs import Jobs
from ...guard import Needs
from ...route import OPENAI, Route
from ...transport.bodies import BODIES
from ...transport.callers import caller_of
from .boundary import answering, check_after
from .pages import BatchObject, BatchPage, ListOf, batch_object, page_of, parse_page

# ---- the body of `POST /v1/batches`


LONGEST_WINDOW = 30 * 86_400.0
"""The same duration in seconds."""

BatchEndpoint = Literal[
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/responses"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpiresAfter:
    """The lifetime of result files, in seconds from their creation."""

    __pydantic_config__ = STRICT

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CreateBatchBody:
    """The body of a new batch.

    `completion_window` is `24h` as in OpenAI's API, or another duration of up to 30 days.
    """

    __pydantic_config__ = STRICT

    input_file_id: Annotated[str, Field(max_length=256)]
    endpoint: BatchEndpoint
    completion_window: Annotated[str, Field(pattern=r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$")]
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
            at_most(16),
        ]
        | None
    ) = None
    output_expires_after: _ExpiresAfter | None = None


_body = TypeAdapter(_CreateBatchBody)


def parse_batch(body: bytes) -> NewBatch:
    """Parse the body of a new batch. Raises `InvalidRequest`."""
    parsed = parse_json(_body, body)
    return NewBatch(
        input_file=parsed.input_file_id,
        endpoint=parsed.endpoint,
        window=_window(parsed.completion_window),
        completion_window=parsed.completion_window,
        metadata=parsed.metadata,
        output_expires_after=(
            None if parsed.output_expires_after is None else parsed.output_expires_after.seconds
        ),
    )


def _window(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_WINDOW:
        raise InvalidRequest(
            "`completion_window`: must be a duration of at most 30d, such as 24h",
            field="completion_window",
        )
    return seconds


# ---- the routes


def routes(jobs: Jobs | None) -> list[Route]:
    """Return the routes. Without `jobs` each route answers that files need `--files`."""
    return [
        Route("POST", "/v1/batches", Needs.CALL, answering(jobs, _create), OPENAI),
        Route("GET", "/v1/batches", Needs.CALL, answering(jobs, _list), OPENAI),
        Route("GET", "/v1/batches/{id}", Needs.CALL, answering(jobs, _retrieve), OPENAI),
        Route("POST", "/v1/batches/{id}/cancel", Needs.CALL, answering(jobs, _cancel), OPENAI),
    ]


async def _create(request: web.Request, jobs: Jobs) -> BatchObject:
    batch = await request.app[BODIES].parsed(request, parse_batch)
    return await shown(jobs, await jobs.batches.create(batch, caller_of(request)))


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
    """Return the batch in the form of answers, with its present counts."""
    return batch_object(batch, *await jobs.counts(batch))
