"""Reports faulty requests of clients to operators: ignored fields and refusals, by route.

A client is an address and a user agent. The log has at most one line a minute for each client and
field, and a bounded number of lines for all clients.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from aiohttp import web

from ....shared.errors import RequestError
from .callers import known_caller
from .doors import report_at_door
from .once_per import OncePer

MINUTE = 60.0

LONGEST_FIELD = 64
"""Maximum characters of a field's name that the log repeats."""

NO_ROUTE = "other"
"""The route of a request to an unknown path."""

_log = logging.getLogger(__name__)


class FaultRecorder(Protocol):
    """Counts ignored fields and refusals. Every argument has few different values."""

    def field_ignored(self, route: str, field: str) -> None:
        """Count a request at `route` whose `field` was ignored."""

    def refused(self, route: str, code: str) -> None:
        """Count a request at `route` that was refused with the error `code` before the fleet got
        it.
        """


class FaultReports:
    """The reports of the inference port.

    With `is_strict`, fields are refused instead of ignored.
    """

    def __init__(
        self,
        recorder: FaultRecorder | None = None,
        *,
        is_strict: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_strict = is_strict
        self._recorder = recorder
        self._clock = clock
        self._notices = OncePer(MINUTE)

    @property
    def num_clients(self) -> int:
        """The number of pairs of a client and a field that were logged in the last minute."""
        return len(self._notices)

    def ignored(self, request: web.Request, names: Sequence[str], labels: Sequence[str]) -> None:
        """Report ignored fields of `request`: `names` to the log, `labels` to the metric."""
        route, client = route_of(request), client_of(request)
        if self._recorder is not None:
            for label in labels:
                self._recorder.field_ignored(route, label)
        now = self._clock()
        if logged := [name for name in names if self._notices.allows((client, name), now)]:
            _log.info("%s: ignored the fields %s, sent by %s", route, ", ".join(logged), client)

    def refused(self, request: web.Request, error: RequestError) -> None:
        """Report that `request`, or a call over its WebSocket, was refused before the fleet got
        it.
        """
        route, client = route_of(request), client_of(request)
        if self._recorder is not None:
            self._recorder.refused(route, error.code)
        place = (error.field or "")[:LONGEST_FIELD]
        if self._notices.allows((client, route, error.code, place), self._clock()):
            at = f" at {place!r}" if place else ""
            _log.warning(
                "%s: the request was refused with %s%s, sent by %s", route, error.code, at, client
            )


FAULT_REPORTS = web.AppKey("FAULT_REPORTS", FaultReports)
"""App key of the app's `FaultReports`."""


def route_of(request: web.Request) -> str:
    """Return the declared route of `request`."""
    resource = request.match_info.route.resource
    return NO_ROUTE if resource is None else resource.canonical


def client_of(request: web.Request) -> str:
    """Return the sender of `request`, address and user agent, on one line."""
    caller = known_caller(request)
    return f"{caller.address} {caller.user_agent or ''!r}"


def report_refusal(request: web.Request, error: RequestError) -> None:
    """Report a refusal to the `FaultReports` and the `Doors` of the request's app."""
    report_at_door(request, error)
    reports = request.app.get(FAULT_REPORTS)
    if reports is not None:
        reports.refused(request, error)


class RefusalReport:
    """A context that reports raised errors as refusals of `request` before the fleet."""

    __slots__ = ("_request",)

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def __enter__(self) -> None:
        """Enter the boundary."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RequestError):
            report_refusal(self._request, error)
