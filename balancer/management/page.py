"""The dashboard's files, read once and served with a strict content security policy."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath

from aiohttp import web

from ...shared.errors import NotFound
from ..api.guard import Needs
from ..api.openapi.document import AnswerDoc, Doc
from ..api.route import Route

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The policy forbids inline code and other origins, so no text can become code."""

_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, in the form in which it is served."""

    body: bytes
    content_type: str
    tag: str


def routes() -> list[Route]:
    """Return the routes of `GET /` and of the page's files. No other file can be reached."""
    served = dict(_load())

    async def index(request: web.Request) -> web.Response:
        return _answer(request, served["index.html"])

    async def part(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in served:
            raise NotFound(f"there is no {request.path} here")
        return _answer(request, served[name])

    index_doc = Doc(
        "Dashboard",
        "The dashboard.",
        {200: AnswerDoc("The page.", {"text/html": {}}), 304: AnswerDoc("Unchanged.")},
    )
    kinds = ("text/html", "text/javascript", "text/css", "image/svg+xml")
    part_doc = Doc(
        "DashboardFile",
        "One of the dashboard's files.",
        {200: AnswerDoc("A file.", {kind: {} for kind in kinds}), 304: AnswerDoc("Unchanged.")},
        errors=(NotFound,),
    )
    return [
        Route("GET", "/", Needs.NOTHING, index, index_doc),
        Route("GET", "/dashboard/{name:.+}", Needs.NOTHING, part, part_doc),
    ]


def _load() -> Iterator[tuple[str, PageFile]]:
    for name, file in _files(files("arriero.dashboard")):
        content_type = _CONTENT_TYPES.get(PurePath(name).suffix)
        if content_type:
            body = file.read_bytes()
            yield name, PageFile(body, content_type, hashlib.sha256(body).hexdigest()[:16])


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the files in `folder` and its subfolders, with their paths."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def _answer(request: web.Request, file: PageFile) -> web.Response:
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
        "ETag": f'"{file.tag}"',
    }
    if any(tag.value == file.tag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = file.content_type
    return web.Response(body=file.body, headers=headers)
