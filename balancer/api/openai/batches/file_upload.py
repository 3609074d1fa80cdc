"""Receives a file: `multipart/form-data`, written to its place as it comes.

Pauses, fields and sizes are bounded. What is wrong is told with the field's name, and leaves
nothing behind.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal

from aiohttp import BodyPartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from .....shared.errors import InvalidRequest
from .....shared.validation import invalid
from ....jobs.files import Files, Upload
from ....store.job_records import SavedFile
from ...transport.bodies import BODY_SILENCE

# ---- the form


FORM = "multipart/form-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadForm:
    """`expires_after` as OpenAI's: seconds from the creation on."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    purpose: Literal["batch"]
    file: Annotated[str, Field(json_schema_extra={"format": "binary"})] = ""
    anchor: Annotated[Literal["created_at"], Field(alias="expires_after[anchor]")] = "created_at"
    expires_after: Annotated[
        int | None, Field(alias="expires_after[seconds]", ge=3600, le=2_592_000)
    ] = None


_fields = TypeAdapter(UploadForm)


def parse_form(given: Mapping[str, str]) -> UploadForm:
    """The fields without the file. Raises `InvalidRequest`."""
    try:
        return _fields.validate_python(dict(given))
    except ValidationError as error:
        raise invalid(error, to_json(dict(given))) from error


# ---- the file


MAX_PARTS = 16
MAX_FIELD = 1024
"""Longest value of a field that is no file, in bytes."""

MAX_NAME = 255
PIECE = 2**16


async def receive(request: web.Request, files: Files, owner: str | None) -> SavedFile:
    """The file of an upload, which belongs to `owner`.

    Raises `InvalidRequest`, `RequestTooLarge` and `Overloaded`.
    """
    if request.content_type != FORM:
        raise InvalidRequest(
            f"the Content-Type must be {FORM}, not {request.content_type[:60]}: send `purpose` "
            "and `file` as a form"
        )
    async with files.upload() as upload:
        with _told():
            given, name = await _read(request, upload)
        wanted = parse_form(given)
        if name is None:
            raise InvalidRequest("`file`: is missing", field="file")
        return await upload.keep(
            owner=owner, name=name, purpose=wanted.purpose, expires_after=wanted.expires_after
        )


async def _read(request: web.Request, upload: Upload) -> tuple[dict[str, str], str | None]:
    """The fields, and the name of the file that was written to `upload`."""
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
            raise InvalidRequest(f"`{part.name[:64]}`: is there twice", field=part.name[:64])
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
            raise InvalidRequest(f"`{name}`: may have at most {MAX_FIELD} bytes", field=name)


def _check_encoding(part: BodyPartReader) -> None:
    encoding = part.headers.get(hdrs.CONTENT_TRANSFER_ENCODING, "binary").lower()
    if encoding not in ("binary", "8bit", "7bit") or hdrs.CONTENT_ENCODING in part.headers:
        raise InvalidRequest("`file`: send its bytes as they are, without encoding", field="file")


def _file_name(given: str | None) -> str:
    """The last part of a path, without what no terminal or header takes."""
    name = PurePosixPath((given or "").replace("\\", "/")).name
    name = "".join(each for each in name if each.isprintable())[:MAX_NAME]
    return name if name.strip(".") else "file.jsonl"


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with the form becomes `InvalidRequest`."""
    try:
        yield
    except TimeoutError as error:
        raise InvalidRequest(
            f"the file did not arrive in time: pauses may take {BODY_SILENCE:g} s at most"
        ) from error
    except (ValueError, RuntimeError, RequestPayloadError, HttpProcessingError) as error:
        raise InvalidRequest(
            f"the form is not well-formed, or ended early: {error}"[:300]
        ) from error
