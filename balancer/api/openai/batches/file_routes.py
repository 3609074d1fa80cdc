"""`/v1/files` over HTTP.

An upload is `multipart/form-data` and is written to storage as it arrives. Its pauses, fields and
sizes are limited. An error names the wrong field, and a failed upload leaves nothing behind.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal

from aiohttp import BodyPartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from .....shared.errors import Conflict, InvalidRequest
from .....shared.strict import LAZY
from .....shared.validation import invalid
from ....jobs.blobs import BlobsAway
from ....jobs.files import Files, Upload
from ....jobs.jobs import Jobs
from ....store.job_records import SavedFile
from ...guard import Needs
from ...route import OPENAI, Route
from ...transport.bodies import BODY_SILENCE
from ...transport.callers import caller_of
from .boundary import Handler, answering, check_after, jobs_for
from .pages import DeletedFile, FileObject, FilePage, ListOf, file_object, page_of, parse_page

logger = logging.getLogger(__name__)


def routes(jobs: Jobs | None) -> list[Route]:
    """Return the routes. Without `jobs` each route answers that files need `--files`."""
    return [
        Route("POST", "/v1/files", Needs.CALL, answering(jobs, _create), OPENAI),
        Route("GET", "/v1/files", Needs.CALL, answering(jobs, _list), OPENAI),
        Route("GET", "/v1/files/{id}", Needs.CALL, answering(jobs, _retrieve), OPENAI),
        Route("DELETE", "/v1/files/{id}", Needs.CALL, answering(jobs, _delete), OPENAI),
        Route("GET", "/v1/files/{id}/content", Needs.CALL, _content(jobs), OPENAI),
    ]


async def _create(request: web.Request, jobs: Jobs) -> FileObject:
    return file_object(await receive(request, jobs.files))


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


# ---- a file is sent


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
    """Send a file.

    If the storage fails during the answer, the connection is closed early to tell the client.
    """
    await response.prepare(request)
    while piece:
        await response.write(piece)
        try:
            piece = await anext(rest, b"")
        except (BlobsAway, ConnectionError) as error:
            logger.warning("a download of a file was cut off: %s", error)
            if request.transport is not None:
                request.transport.close()
            return response
    await response.write_eof()
    return response


# ---- the form of an upload


FORM = "multipart/form-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadForm:
    """The fields of an upload. `expires_after` is OpenAI's, in seconds from the creation."""

    __pydantic_config__ = ConfigDict(**LAZY, extra="forbid")

    purpose: Literal["batch"]
    file: Annotated[str, Field(json_schema_extra={"format": "binary"})] = ""
    anchor: Annotated[Literal["created_at"], Field(alias="expires_after[anchor]")] = "created_at"
    expires_after: Annotated[
        int | None, Field(alias="expires_after[seconds]", ge=3600, le=2_592_000)
    ] = None


_fields = TypeAdapter(UploadForm)


def parse_form(given: Mapping[str, str]) -> UploadForm:
    """Return the fields without the file. Raises `InvalidRequest`."""
    try:
        return _fields.validate_python(dict(given))
    except ValidationError as error:
        raise invalid(error, to_json(dict(given))) from error


# ---- a file is received


MAX_PARTS = 16
MAX_FIELD = 1024
"""Maximum bytes of the value of a field other than the file."""

MAX_NAME = 255
PIECE = 2**16


async def receive(request: web.Request, files: Files) -> SavedFile:
    """Receive an upload, and return its file, which belongs to the caller.

    Raises `Unauthorized`, `InvalidRequest`, `RequestTooLarge` and `Overloaded`.
    """
    if request.content_type != FORM:
        raise InvalidRequest(
            f"the Content-Type must be {FORM}, not {request.content_type[:60]}: send `purpose` "
            "and `file` as a form"
        )
    async with files.upload(caller_of(request)) as upload:
        with _refused():
            given, name = await _read(request, upload)
        form = parse_form(given)
        if name is None:
            raise InvalidRequest("`file`: is missing", field="file")
        return await upload.keep(name=name, purpose=form.purpose, expires_after=form.expires_after)


async def _read(request: web.Request, upload: Upload) -> tuple[dict[str, str], str | None]:
    """Write the file to `upload`. Return the other fields, and the name of the file."""
    given: dict[str, str] = {}
    file_name: str | None = None
    reader = await request.multipart()
    for _ in range(MAX_PARTS):
        async with asyncio.timeout(BODY_SILENCE):
            part = await reader.next()
        if part is None:
            return given, file_name
        if not isinstance(part, BodyPartReader) or not part.name:
            raise InvalidRequest("each part of the form must have a name and one value")
        if part.name == "file" and file_name is None:
            _check_encoding(part)
            await _write(part, upload)
            file_name = _file_name(part.filename)
        elif part.name in given or part.name == "file":
            raise InvalidRequest(f"`{part.name[:64]}`: the form has it twice", field=part.name[:64])
        else:
            given[part.name[:MAX_FIELD]] = await _value(part)
    raise InvalidRequest(f"the form may have at most {MAX_PARTS} parts")


async def _write(part: BodyPartReader, upload: Upload) -> None:
    while True:
        async with asyncio.timeout(BODY_SILENCE):
            piece = await part.read_chunk(PIECE)
        if not piece:
            return
        await upload.write(piece)


async def _value(part: BodyPartReader) -> str:
    value = bytearray()
    while True:
        async with asyncio.timeout(BODY_SILENCE):
            piece = await part.read_chunk(PIECE)
        if not piece:
            return value.decode(errors="replace")
        value += piece
        if len(value) > MAX_FIELD:
            name = (part.name or "")[:64]
            raise InvalidRequest(f"`{name}`: must have at most {MAX_FIELD} bytes", field=name)


def _check_encoding(part: BodyPartReader) -> None:
    encoding = part.headers.get(hdrs.CONTENT_TRANSFER_ENCODING, "binary").lower()
    if encoding not in ("binary", "8bit", "7bit") or hdrs.CONTENT_ENCODING in part.headers:
        raise InvalidRequest("`file`: send the bytes of the file without an encoding", field="file")


def _file_name(given: str | None) -> str:
    """Return the last part of a path, without characters that terminals or headers do not
    accept."""
    name = PurePosixPath((given or "").replace("\\", "/")).name
    name = "".join(each for each in name if each.isprintable())[:MAX_NAME]
    return name if name.strip(".") else "file.jsonl"


@contextmanager
def _refused() -> Iterator[None]:
    """Turn errors of the form into `InvalidRequest`."""
    try:
        yield
    except TimeoutError as error:
        raise InvalidRequest(
            f"the file did not arrive in time: a pause may take at most {BODY_SILENCE:g} s"
        ) from error
    except (ValueError, RuntimeError, RequestPayloadError, HttpProcessingError) as error:
        raise InvalidRequest(f"the form is malformed or incomplete: {error}"[:300]) from error
