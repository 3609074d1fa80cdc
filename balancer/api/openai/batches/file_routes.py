"""`/v1/files` over HTTP."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import hdrs, web

from .....shared.errors import Conflict
from ....jobs.blobs.port import BlobsAway
from ....jobs.jobs import Jobs
from ....store.job_records import SavedFile
from ...access.permissions import Needs
from ...route import OPENAI, Route
from ...transport.callers import caller_of
from .boundary import Handler, answering, check_after, jobs_for
from .file_upload import receive
from .pages import DeletedFile, FileObject, FilePage, ListOf, file_object, page_of, parse_page

logger = logging.getLogger(__name__)


def routes(jobs: Jobs | None) -> list[Route]:
    """The routes. Without `jobs` they say how to get them."""
    return [
        Route("POST", "/v1/files", Needs.CALL, answering(jobs, _create), OPENAI),
        Route("GET", "/v1/files", Needs.CALL, answering(jobs, _list), OPENAI),
        Route("GET", "/v1/files/{id}", Needs.CALL, answering(jobs, _retrieve), OPENAI),
        Route("DELETE", "/v1/files/{id}", Needs.CALL, answering(jobs, _delete), OPENAI),
        Route("GET", "/v1/files/{id}/content", Needs.CALL, _content(jobs), OPENAI),
    ]


async def _create(request: web.Request, jobs: Jobs) -> FileObject:
    return file_object(await receive(request, jobs.files, caller_of(request).owner))


async def _list(request: web.Request, jobs: Jobs) -> ListOf[FileObject]:
    page = parse_page(FilePage, request.query)
    owner = caller_of(request).owner
    await check_after(page.after, owner, jobs.files)
    found = await jobs.files.page(
        owner, purpose=page.purpose, after=page.after, limit=page.limit + 1, order=page.order
    )
    return page_of([file_object(file) for file in found], page.limit)


async def _retrieve(request: web.Request, jobs: Jobs) -> FileObject:
    return file_object(await _file(request, jobs))


async def _delete(request: web.Request, jobs: Jobs) -> DeletedFile:
    file = await _file(request, jobs)
    if (reader := await jobs.batches.reader_of(file.id)) is not None:
        raise Conflict(f"the batch {reader} reads this file; cancel it first")
    await jobs.files.delete(file.id, file.owner)
    return {"id": file.id, "object": "file", "deleted": True}


async def _file(request: web.Request, jobs: Jobs) -> SavedFile:
    return await jobs.files.find(request.match_info["id"], caller_of(request).owner)


# ---- bytes


def _content(jobs: Jobs | None) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        with jobs_for(request, jobs) as found:
            file = await _file(request, found)
        try:
            start, stop, _ = request.http_range.indices(file.num_bytes)
        except ValueError:
            start = stop = -1
        is_part = hdrs.RANGE in request.headers
        if is_part and not 0 <= start < stop:
            headers = {hdrs.CONTENT_RANGE: f"bytes */{file.num_bytes}"}
            return web.Response(status=416, headers=headers)
        response = _head(file, start, stop, is_part=is_part)
        async with aclosing(found.files.read(file, start, stop)) as pieces:
            with jobs_for(request, jobs):  # while another status can still be answered
                first = b"" if request.method == hdrs.METH_HEAD else await anext(pieces, b"")
            return await _send(request, response, first, pieces)

    return handler


def _head(file: SavedFile, start: int, stop: int, *, is_part: bool) -> web.StreamResponse:
    response = web.StreamResponse(status=206 if is_part else 200)
    response.content_type = "application/octet-stream"
    response.content_length = stop - start
    response.headers[hdrs.ACCEPT_RANGES] = "bytes"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers[hdrs.CONTENT_DISPOSITION] = f'attachment; filename="{file.id}.jsonl"'
    if is_part:
        response.headers[hdrs.CONTENT_RANGE] = f"bytes {start}-{stop - 1}/{file.num_bytes}"
    return response


async def _send(
    request: web.Request,
    response: web.StreamResponse,
    piece: bytes,
    rest: AsyncGenerator[bytes, None],
) -> web.StreamResponse:
    """A connection that closes early is how a client learns that storage went on the way."""
    await response.prepare(request)
    while piece:
        await response.write(piece)
        try:
            piece = await anext(rest, b"")
        except (BlobsAway, ConnectionError) as error:
            logger.warning("a file was cut off while it was sent: %s", error)
            if request.transport is not None:
                request.transport.close()
            return response
    await response.write_eof()
    return response
