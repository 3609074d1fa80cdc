"""`/v1/files` over HTTP."""

from aiohttp import hdrs, web

from .....shared.errors import Conflict
from ....jobs.jobs import Jobs
from ....store.jobs.records import SavedFile
from ...common.answering import json_response
from ...transport.callers import caller_of
from .answer_types import DeletedFile
from .boundary import jobs_for
from .file_upload import receive
from .pages import file_list, file_object, parse_file_page, unknown_after


def routes(jobs: Jobs | None) -> list[web.AbstractRouteDef]:
    """The routes. Without `jobs` they say how to get them."""
    handlers = _Handlers(jobs)
    return [
        web.post("/v1/files", handlers.create),
        web.get("/v1/files", handlers.list),
        web.get("/v1/files/{id}", handlers.retrieve),
        web.delete("/v1/files/{id}", handlers.delete),
        web.get("/v1/files/{id}/content", handlers.content),
    ]


class _Handlers:
    def __init__(self, jobs: Jobs | None) -> None:
        self._jobs = jobs

    async def create(self, request: web.Request) -> web.Response:
        with jobs_for(request, self._jobs) as jobs:
            file = await receive(request, jobs.files, caller_of(request).owner)
        return json_response(file_object(file))

    async def list(self, request: web.Request) -> web.Response:
        with jobs_for(request, self._jobs) as jobs:
            page = parse_file_page(request.query)
            owner = caller_of(request).owner
            if page.after is not None and not await jobs.files.has(page.after, owner):
                raise unknown_after(page.after)
            files = await jobs.files.page(
                owner,
                purpose=page.purpose,
                after=page.after,
                limit=page.limit + 1,
                order=page.order,
            )
        return json_response(file_list(files, page.limit))

    async def retrieve(self, request: web.Request) -> web.Response:
        return json_response(file_object(await self._file(request)))

    async def delete(self, request: web.Request) -> web.Response:
        file = await self._file(request)
        with jobs_for(request, self._jobs) as jobs:
            if (reader := await jobs.batches.reader_of(file.id)) is not None:
                raise Conflict(f"the batch {reader} reads this file; cancel it first")
            await jobs.files.delete(file.id, file.owner)
        body: DeletedFile = {"id": file.id, "object": "file", "deleted": True}
        return json_response(body)

    async def content(self, request: web.Request) -> web.StreamResponse:
        file = await self._file(request)
        try:
            start, stop, _ = request.http_range.indices(file.num_bytes)
        except ValueError:
            start = stop = -1
        is_part = hdrs.RANGE in request.headers
        if is_part and not 0 <= start < stop:
            headers = {hdrs.CONTENT_RANGE: f"bytes */{file.num_bytes}"}
            return web.Response(status=416, headers=headers)
        return await self._send(request, file, start, stop, is_part=is_part)

    async def _send(
        self, request: web.Request, file: SavedFile, start: int, stop: int, *, is_part: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=206 if is_part else 200)
        response.content_type = "application/octet-stream"
        response.content_length = stop - start
        response.headers[hdrs.ACCEPT_RANGES] = "bytes"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers[hdrs.CONTENT_DISPOSITION] = f'attachment; filename="{file.id}.jsonl"'
        if is_part:
            response.headers[hdrs.CONTENT_RANGE] = f"bytes {start}-{stop - 1}/{file.num_bytes}"
        await response.prepare(request)
        if request.method != hdrs.METH_HEAD and self._jobs is not None:
            async for piece in self._jobs.files.read(file, start, stop):
                await response.write(piece)
        await response.write_eof()
        return response

    async def _file(self, request: web.Request) -> SavedFile:
        with jobs_for(request, self._jobs) as jobs:
            return await jobs.files.find(request.match_info["id"], caller_of(request).owner)
