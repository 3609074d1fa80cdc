"""Reads a body by its field table, and reports ignored fields: header, log, metric."""

from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from ..transport.bodies import parsed
from ..transport.fault_reports import FAULT_REPORTS
from .field_notes import FieldNotes

IGNORED_HEADER = "X-Arriero-Ignored"

T = TypeVar("T")

_ignored = web.RequestKey("_ignored", str)


async def obeyed(request: web.Request, parse: Callable[[bytes, FieldNotes], T]) -> T:
    """The body of `request`, parsed by `parse`; the answer will report ignored fields.

    Raises as `transport.bodies.parsed` does.
    """
    reports = request.app.get(FAULT_REPORTS)
    notes = FieldNotes(is_strict=reports is not None and reports.is_strict)
    try:
        return await parsed(request, lambda body: parse(body, notes))
    finally:
        if notes.names:
            request[_ignored] = notes.header
        if notes.names and reports is not None:
            reports.ignored(request, notes.names, notes.labels)


async def tell_ignored(request: web.Request, response: web.StreamResponse) -> None:
    """A handler of an app's `on_response_prepare`: sets the header, on errors as well."""
    if _ignored in request:
        response.headers[IGNORED_HEADER] = request[_ignored]
